import { describeError } from '../../../lib/errors.ts';
import type { Cancel, Clock } from '../../../lib/kit/clock.ts';
import type { Log } from '../../../lib/log.ts';
import type { Relay } from '../../../lib/relay.ts';
import type { Stores } from '../../../storage/schema.ts';

/** Key, beside the stores, of the expiry of an unused relay, epoch ms. */
export const ENDS = 'ends';
/** Milliseconds for which a relay without a session, a home and a pairing code stays. */
export const UNUSED_FOR = 30 * 86_400_000;
/** Key of a pinned home in the store of the mirror. */
const HOME = 'peer';
/** Shorter timers do not use the object's alarm. */
const MIN_WAIT = 60_000;

export interface ExpiryDeps {
  storage: { put(key: string, value: number): Promise<void>; delete(key: string): Promise<unknown> };
  relay: Pick<Relay, 'sessions' | 'codes' | 'edgeMirror'>;
  stores: Pick<Stores, 'open'>;
  clock: Clock;
  log: Log;
  /** True if it has a `RELAY_PAIRING_CODE`, which works once: a relay that started over would accept the used one again. */
  hasInitialCode?: boolean;
  /** The value stored under `ENDS`. */
  ends?: number;
}

export type Expiry = ReturnType<typeof createExpiry>;

/**
 * Decides when an unused relay at the edge ends (lib/reach/README.md). The object's alarm is set for that end, or while
 * there are sessions and no home, for the next end of a session, since one that expires while the object sleeps may be the
 * last.
 */
export function createExpiry({ storage, relay, stores, clock, log, hasInitialCode = false, ends }: ExpiryDeps) {
  const { sessions, codes, edgeMirror } = relay;
  let timer: { at: number; cancel: Cancel } | undefined;
  const failed = (error: unknown) => log.error(`the end of this relay is not known: ${describeError(error)}`);

  function wakeAt(at: number): void {
    if (timer?.at === at) return;
    timer?.cancel();
    timer = undefined;
    if (!Number.isFinite(at)) return;
    const delay = Math.max(MIN_WAIT, at - clock.now());
    timer = { at, cancel: clock.after(delay, () => (timer = undefined)) };
  }

  function set(next: number | undefined): void {
    if (next === ends) return;
    ends = next;
    void (next === undefined ? storage.delete(ENDS) : storage.put(ENDS, next)).catch(failed);
  }

  const isUsed = (): boolean => hasInitialCode || edgeMirror?.isExpected() !== false || sessions.isUsed();

  /**
   * Sets or cancels the expiry according to the present state. Called after every event of the object; free if nothing
   * changed.
   */
  function check(): void {
    try {
      const hasHome = edgeMirror?.isExpected() !== false;
      if (isUsed()) set(undefined);
      else {
        const lastCode = Math.max(0, ...codes.waiting().codes.map(({ expiresAt }) => expiresAt));
        set(Math.max(ends ?? clock.now() + UNUSED_FOR, lastCode * 1000 + UNUSED_FOR));
      }
      wakeAt(ends ?? (hasHome || hasInitialCode ? Number.POSITIVE_INFINITY : sessions.nextEnd() * 1000));
    } catch (error) {
      failed(error);
    }
  }

  // A session that existed only between two checks counts too.
  sessions.onEnd(() => set(undefined));

  return {
    check,

    /** Restarts the 30 days. */
    renew(): void {
      set(undefined);
      check();
    },

    /**
     * Resolves with true if the relay ends now. Also checks the stores themselves, since an unreadable record is not a
     * missing one. A relay that is due but stays is checked again after another 30 days.
     */
    async isOver(): Promise<boolean> {
      check();
      if (ends === undefined || clock.now() < ends) return false;
      try {
        const [sessionKeys, mirror] = await Promise.all([
          stores.open('sessions').getKeys(),
          stores.open('mirror').getKeys(),
        ]);
        check();
        const isUnused =
          sessionKeys.length === 0 && !mirror.includes(HOME) && ends !== undefined && clock.now() >= ends;
        if (isUnused) return true;
        log.warn('this relay is unused, but has records that cannot be read: it stays');
      } catch (error) {
        failed(error);
      }
      if (ends !== undefined) set(clock.now() + UNUSED_FOR);
      check();
      return false;
    },
  };
}
