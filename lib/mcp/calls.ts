import type { CallToolResult } from '@modelcontextprotocol/server';
import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject, type JsonObject } from '../kit/json.ts';
import { visibleName } from '../kit/text.ts';
import type { Media } from '../media/media.ts';
import type { Actor } from '../operations/actor.ts';
import type { Operation } from '../operations/operation.ts';
import type { Operations } from '../operations/table.ts';
import type { Session } from '../sessions/session.ts';
import { errorResult, resultOf } from './results.ts';

/** Milliseconds between progress messages during a call, since clients give up on a silent one. */
const PROGRESS_PERIOD = 15_000;

/** The caller of tools. */
export interface Caller {
  /** The paired session. @throws RelayError `unauthorized` if it has ended. */
  session(): Session;
  /** Names the run of the agent in records (contract 09 §9). */
  runId(): string;
  /** Admits a call. @throws RelayError `rate-limited` if too many are running. */
  begin(): () => void;
}

/** A call that is running. */
export interface StartedCall {
  /** Never rejects with a RelayError: a refusal is a result. */
  readonly result: Promise<CallToolResult>;
  abort(): void;
  /** Sends progress messages to `report` from now on; an undelivered last one is sent at once. */
  follow(report: (message: string) => void): void;
}

export interface CallDeps {
  operations: Operations;
  media: Media | undefined;
  clock: Clock;
}

/** Starts a call of a tool. `client` is the name that the program gives itself. */
export function startCall(
  { operations, media, clock }: CallDeps,
  operation: Operation,
  { args, caller, client }: { args: unknown; caller: Caller; client: string | undefined },
): StartedCall {
  const end = new AbortController();
  let last: string | undefined;
  let onProgress = (message: string): void => {
    last = message;
  };
  const since = clock.monotonic();
  let cancelAlive = (): void => {};
  const alive = (): void => {
    cancelAlive = clock.after(PROGRESS_PERIOD, () => {
      onProgress(`waiting for ${Math.round((clock.monotonic() - since) / 1000)} s`);
      alive();
    });
  };

  async function run(): Promise<CallToolResult> {
    let leave = (): void => {};
    try {
      leave = caller.begin();
      alive();
      const session = caller.session();
      const actor: Actor = {
        kind: 'mcp',
        session,
        client: visibleName(client) || undefined,
        runId: caller.runId(),
      };
      const outcome = await operations.call(operation, args, actor, end.signal, (message) => onProgress(message));
      return await resultOf(operation, outcome, { media, owner: session.family });
    } catch (error) {
      if (error instanceof RelayError) return errorResult(error);
      throw error;
    } finally {
      cancelAlive();
      leave();
    }
  }

  const result = run();
  // Every caller that awaits it gets its failure too.
  result.catch(() => {});
  return {
    result,
    abort: () => end.abort(),
    follow(report) {
      onProgress = report;
      if (last !== undefined) report(last);
    },
  };
}

export type CallId = string | number;

/** The call in a body that is exactly one `tools/call`; undefined for any other. */
export function readCall(body: unknown): { id: CallId; name: string; args: unknown } | undefined {
  if (!isObject(body) || body.jsonrpc !== '2.0' || body.method !== 'tools/call' || !isObject(body.params))
    return undefined;
  const { id, params } = body;
  const { name, arguments: args = {} } = params;
  const isId = typeof id === 'string' || Number.isSafeInteger(id);
  return isId && typeof name === 'string' && isObject(args) ? { id: id as CallId, name, args } : undefined;
}

/** The id of the call that a body cancels. */
export function readCancellation(body: unknown): CallId | undefined {
  if (!isObject(body) || body.method !== 'notifications/cancelled') return undefined;
  const id = (body.params as JsonObject | undefined)?.requestId;
  return typeof id === 'string' || typeof id === 'number' ? id : undefined;
}
