import { objects } from '../devices/rows.ts';
import type { OperatorRelay } from '../operator-relay.ts';
import { pause } from '../pause.ts';

/** Milliseconds between polls. */
const PERIOD = 500;
/** Maximum items that may be newer than the message at the first lookup. */
const PAGE = 200;

export type Tracker = Awaited<ReturnType<typeof createTracker>>;

/**
 * Tracks the state of a message that is about to be sent, for information only: if the relay has no history or does not
 * answer, nothing fails.
 */
export async function createTracker(relay: OperatorRelay, messageId: string) {
  const page = (since: number, limit: number) =>
    relay.call({ method: 'GET', path: `/phone/history?since=${since}&limit=${limit}` }).catch(() => undefined);
  const latest = (await page(0, 1))?.latest;
  /** `seq` before the message; undefined without a history. */
  const since = typeof latest === 'number' ? latest : undefined;
  let state: string | null = null;
  /** Its number when last seen, which the edge of a mirror changes once. */
  let found: number | undefined;

  async function ownOf(since: number, limit: number) {
    const answer = await page(since, limit);
    return objects(answer?.items).find((item) => item.kind === 'message' && item.message_id === messageId);
  }

  /**
   * The present state of the message (contract 09 §1); the last known one if the relay does not answer, null if there is
   * none.
   */
  async function refresh(): Promise<string | null> {
    if (since === undefined) return null;
    const own = (found !== undefined && (await ownOf(found - 1, 1))) || (await ownOf(since, PAGE));
    if (typeof own?.seq === 'number' && typeof own.state === 'string') {
      found = own.seq;
      state = own.state;
    }
    return state;
  }

  return {
    refresh,
    /** Polls until `isEnough`, for at most `ms` milliseconds. Returns the last state. */
    async until(isEnough: (state: string) => boolean, ms: number, signal?: AbortSignal): Promise<string | null> {
      const deadline = performance.now() + ms;
      for (;;) {
        const seen = await refresh();
        const left = deadline - performance.now();
        if (seen === null || isEnough(seen) || left <= 0 || signal?.aborted) return seen;
        await pause(Math.min(PERIOD, left), signal);
      }
    },
    /** Calls back with every state after `known` until `signal` aborts. Never rejects. */
    async follow(known: string, onState: (state: string) => void, signal: AbortSignal): Promise<void> {
      for (let before = known; since !== undefined && !signal.aborted; ) {
        const now = await refresh();
        if (signal.aborted) return;
        if (now !== null && now !== before) {
          before = now;
          onState(now);
        }
        await pause(PERIOD, signal);
      }
    },
  };
}
