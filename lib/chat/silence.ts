import type { Cancel, Clock } from '../kit/clock.ts';

/** Watches how long something is waited for. */
export interface Silence {
  /** The wait begins. */
  begin(): void;
  /** What was waited for has come. */
  end(): void;
  stop(): void;
}

/**
 * Calls `onSilent` once after a wait of `limit` milliseconds. One timer looks back instead of a new one for every
 * wait: long timers are dear at the edge.
 */
export function createSilence(clock: Clock, limit: number, onSilent: () => void): Silence {
  let since: number | undefined;
  let cancel: Cancel;
  const look = () => {
    const waited = since === undefined ? 0 : clock.monotonic() - since;
    if (waited >= limit) onSilent();
    else arm(limit - waited);
  };
  const arm = (delay: number) => {
    cancel = clock.after(delay, look);
  };
  arm(limit);
  return {
    begin() {
      since = clock.monotonic();
    },
    end() {
      since = undefined;
    },
    stop: () => cancel(),
  };
}
