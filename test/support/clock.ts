import { type Clock, systemClock } from '../../lib/kit/clock.ts';

export interface TestClock extends Clock {
  /** Moves time forward by `ms`. Runs the timers that fall due in order, each at its own time, before it returns. */
  advance(ms: number): void;
  /** Like `advance`, but lets promises and I/O continue after every timer, for work that sets its next timer later. */
  advanceAsync(ms: number): Promise<void>;
  /** Moves time at once, as a machine does that wakes up: timers that fell due meanwhile run now, each once. */
  leap(ms: number): Promise<void>;
  /** Sets the wall time, as an administrator does: timers and monotonic time go on. */
  set(now: number): void;
  /** Number of pending timers. */
  readonly pending: number;
}

interface Timer {
  due: number;
  run: () => void;
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A clock that only moves when a test moves it. `start` is in epoch milliseconds. */
export function createTestClock(start = 1_790_000_000_000): TestClock {
  let elapsed = 0;
  let origin = start;
  const timers = new Set<Timer>();

  /** The timer that is due first. Of timers due at the same time, the one set first. */
  function next(until: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of timers) if (timer.due <= until && (!first || timer.due < first.due)) first = timer;
    return first;
  }

  function fire(timer: Timer): void {
    timers.delete(timer);
    elapsed = Math.max(elapsed, timer.due);
    timer.run();
  }

  return {
    now: () => origin + elapsed,
    monotonic: () => elapsed,
    after(delay, run) {
      const timer = { due: elapsed + Math.max(0, delay), run };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    advance(ms) {
      const until = elapsed + ms;
      for (let timer = next(until); timer; timer = next(until)) fire(timer);
      elapsed = until;
    },
    async advanceAsync(ms) {
      const until = elapsed + ms;
      await settle();
      for (let timer = next(until); timer; timer = next(until)) {
        fire(timer);
        await settle();
      }
      elapsed = Math.max(elapsed, until);
    },
    async leap(ms) {
      elapsed += ms;
      await settle();
      for (let timer = next(elapsed); timer; timer = next(elapsed)) {
        fire(timer);
        await settle();
      }
    },
    set(now) {
      origin = now - elapsed;
    },
    get pending() {
      return timers.size;
    },
  };
}

/** The clock of this machine, whose wall time a test moves by `offset` milliseconds. Timers go on as they are. */
export function createShiftedClock() {
  const clock = { ...systemClock, offset: 0, now: () => systemClock.now() + clock.offset };
  return clock;
}
