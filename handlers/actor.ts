import { visible } from '../lib/kit/text.ts';
import type { Actor } from '../lib/operations/actor.ts';
import type { Relay } from '../lib/relay.ts';
import type { RelayRequest } from './request.ts';

const MAX_LABEL = 256;
/** Header with the agent run that a call belongs to (contract 07 §2.4, 09 §9). */
export const RUN_ID = 'x-svc-relay-run-id';

/** At most 256 printable characters of a header; undefined if it has none (contract 07 §2.4). */
export const label = ({ headers }: RelayRequest, name: string): string | undefined =>
  visible(headers.get(name) ?? '')
    .trim()
    .slice(0, MAX_LABEL)
    .toWellFormed() || undefined;

/**
 * The actor of a guarded request (contract 09 §9). An agent that executes a run of realtime voice sends its id. The session
 * is the agent's own, so that revoking it ends the run's actions.
 */
export function actorOf(request: RelayRequest, relay: Relay): Actor {
  const { session } = request;
  if (!session) return { kind: 'operator' };
  const runId = label(request, RUN_ID);
  if (runId !== undefined && relay.voice.isRun(runId)) return { kind: 'voice', session, runId };
  return { kind: 'session', session, runId };
}

/** Name of the caller for other people: an owner recognises it among the names of their devices. */
export const nameOf = ({ session }: RelayRequest): string => session?.device.name ?? 'operator';
