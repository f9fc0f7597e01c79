import type { Session } from '../sessions/session.ts';

/** The caller that an operation is carried out for (contract 09 §9). */
export type Actor =
  | { kind: 'operator' }
  | { kind: 'session'; session: Session; runId?: string }
  /** An agent that speaks MCP, and the name that it gives itself. */
  | { kind: 'mcp'; session: Session; client?: string; runId?: string }
  /** A run of the realtime voice agent. */
  | { kind: 'voice'; session: Session; runId?: string };

/** The actor as shown in activity records, events and log lines (contract 09 §9). Contains no secrets. */
export interface ActorRecord {
  kind: Actor['kind'];
  /** Name of the device, or, over MCP, of the program. */
  name: string;
  /** Prefix of the session, so that its owner can revoke it. */
  prefix?: string;
  run_id?: string;
}

export function recordOf(actor: Actor): ActorRecord {
  if (actor.kind === 'operator') return { kind: 'operator', name: 'operator' };
  const { prefix, device } = actor.session;
  const name = (actor.kind === 'mcp' && actor.client) || device.name;
  return { kind: actor.kind, name, prefix, ...(actor.runId !== undefined && { run_id: actor.runId }) };
}

/** The actor in a log line: `mcp codex 1a2b3c4d`. */
export const describeActor = ({ kind, name, prefix }: ActorRecord): string =>
  [kind, kind === 'operator' ? '' : name, prefix ?? ''].filter(Boolean).join(' ');

/** Like `describeActor`, for an actor. */
export const actorText = (actor: Actor): string => describeActor(recordOf(actor));
