/** Source of time, which tests replace. */
export interface Clock {
  /** Wall time, epoch milliseconds. */
  now(): number;
  /** Milliseconds that never go backwards, for durations and rate limits. */
  monotonic(): number;
  /** Calls `run` once after `delay` milliseconds, of any size; 0 is right after the current task. Returns a cancel function. */
  after(delay: number, run: () => void): Cancel;
}

export type Cancel = () => void;

/** Longer delays are split into steps of this length: a timer beyond 2^31-1 ms would fire at once. */
const STEP_MS = 3_600_000;

/** Epoch seconds, the unit of every timestamp in the contract (01, conventions). */
export const seconds = (clock: Pick<Clock, 'now'>): number => clock.now() / 1000;

/** True for a time since the epoch that a `Date` can hold, in units of `unit` milliseconds: others throw when they are shown. */
export const isTime = (value: unknown, unit = 1): value is number =>
  typeof value === 'number' && Math.abs(value * unit) <= 8.64e15;

/** On Node, `setImmediate` runs before further input, where a timer would take a millisecond. */
const immediates = globalThis as {
  setImmediate?: (run: () => void) => unknown;
  clearImmediate?: (immediate: unknown) => void;
};

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delay, run) {
    if (delay <= 0 && immediates.setImmediate) {
      const immediate = immediates.setImmediate(run);
      return () => immediates.clearImmediate?.(immediate);
    }
    // In steps of equal length, since Node keeps a list per timer length, so that equal timers cost nothing.
    if (delay > STEP_MS) return inSteps(delay, run);
    const timer = detached(run, Math.max(delay, 0));
    return () => clearTimeout(timer);
  },
};

/**
 * Resolves in another turn of the event loop, after pending input, for work in slices. Not on the relay's clock, since
 * it measures no time.
 */
export const nextTurn = (): Promise<void> => new Promise((resolve) => void systemClock.after(0, resolve));

function inSteps(delay: number, run: () => void): Cancel {
  let timer: ReturnType<typeof setTimeout>;
  const arm = (left: number) => {
    const step = Math.min(left, STEP_MS);
    timer = detached(() => (left > step ? arm(left - step) : run()), step);
  };
  arm(delay);
  return () => clearTimeout(timer);
}

/** On Node, a pending timer must not keep a stopping relay alive. The edge has no `unref`. */
function detached(run: () => void, delay: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(run, delay);
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

/** Runs `task` every `period` milliseconds until cancelled. Runs never overlap; failures go to `onError`. */
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
