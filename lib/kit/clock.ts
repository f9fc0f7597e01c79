/** Time, so that tests move the clock and not the wall. */
export interface Clock {
  /** Wall time, epoch milliseconds. */
  now(): number;
  /** Milliseconds that never go backwards, for rate limits. */
  monotonic(): number;
  /** Calls `run` once after `delay` milliseconds (any size; 0 is as soon as what runs now is done). Returns its cancellation. */
  after(delay: number, run: () => void): Cancel;
}

export type Cancel = () => void;

/** A longer wait is made of several (timers beyond 2^31-1 ms would fire at once). */
const FAR_MS = 3_600_000;

/** Epoch seconds, the unit of every timestamp in the contract (01, conventions). */
export const seconds = (clock: Clock): number => clock.now() / 1000;

/** Node's: what is due at once runs before anything else that comes in, where a timer would take a millisecond. */
const soon = globalThis as {
  setImmediate?: (run: () => void) => unknown;
  clearImmediate?: (immediate: unknown) => void;
};

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delay, run) {
    if (delay <= 0 && soon.setImmediate) {
      const immediate = soon.setImmediate(run);
      return () => soon.clearImmediate?.(immediate);
    }
    // Far ones in steps of the same length: timers of one length cost Node nothing, each other length a list.
    if (delay > FAR_MS) return inSteps(delay, run);
    const timer = detached(run, Math.max(delay, 0));
    return () => clearTimeout(timer);
  },
};

function inSteps(delay: number, run: () => void): Cancel {
  let timer: ReturnType<typeof setTimeout>;
  const arm = (left: number) => {
    const step = Math.min(left, FAR_MS);
    timer = detached(() => (left > step ? arm(left - step) : run()), step);
  };
  arm(delay);
  return () => clearTimeout(timer);
}

/** On Node a pending timer must not keep a stopping relay alive; at the edge there is nothing to detach from. */
function detached(run: () => void, delay: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(run, delay);
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

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
