import type { Cancel, Clock } from './clock.ts';

/**
 * Limits how long each of several waits may take: calls `onIdle` once when a wait has lasted `limit` ms. A single timer
 * checks the current wait instead of one timer per wait, because long timers are expensive at the edge.
 */
export function createIdleTimer(clock: Clock, limit: number, onIdle: () => void) {
  let since: number | undefined;
  let cancel: Cancel;
  const check = () => {
    const waited = since === undefined ? 0 : clock.monotonic() - since;
    if (waited >= limit) onIdle();
    else arm(limit - waited);
  };
  const arm = (delay: number) => {
    cancel = clock.after(delay, check);
  };
  arm(limit);
  return {
    /** A wait begins. */
    begin(): void {
      since = clock.monotonic();
    },
    /** The wait is over. */
    end(): void {
      since = undefined;
    },
    stop: (): void => cancel(),
  };
}
