/** Time, so that tests move the clock and not the wall. */
export interface Clock {
  /** Wall time, epoch milliseconds. */
  now(): number;
  /** Milliseconds that never go backwards, for rate limits. */
  monotonic(): number;
  /** Calls `run` once after `delay` milliseconds (any size). Returns its cancellation. */
  after(delay: number, run: () => void): Cancel;
}

export type Cancel = () => void;

/** Timers beyond 2^31-1 ms fire at once, so a longer wait is made of several. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Epoch seconds, the unit of every timestamp in the contract (01, conventions). */
export const seconds = (clock: Clock): number => clock.now() / 1000;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delay, run) {
    let timer: ReturnType<typeof setTimeout>;
    const arm = (left: number) => {
      const step = Math.min(Math.max(left, 0), MAX_TIMER_MS);
      timer = setTimeout(() => (left > step ? arm(left - step) : run()), step);
      // On Node a pending timer must not keep a stopping relay alive; at the edge there is nothing to detach from.
      (timer as { unref?: () => void }).unref?.();
    };
    arm(delay);
    return () => clearTimeout(timer);
  },
};

/** Runs `task` every `period` milliseconds until cancelled. Runs never overlap; a failure is passed to `onError`. */
export function every(
  clock: Clock,
  period: number,
  task: () => void | Promise<void>,
  onError: (error: unknown) => void,
): Cancel {
  let stopped = false;
  let cancel: Cancel;
  const arm = () => {
    cancel = clock.after(period, async () => {
      try {
        await task();
      } catch (error) {
        onError(error);
      }
      if (!stopped) arm();
    });
  };
  arm();
  return () => {
    stopped = true;
    cancel();
  };
}
