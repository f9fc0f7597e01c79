import type { Cancel, Clock } from '../kit/clock.ts';

/** Milliseconds of an agent's silence between two reports of it. */
const REPORT_EVERY = 30_000;

export type SilenceWatch = ReturnType<typeof watchSilence>;

/** Calls `onSilence` with the seconds of silence: 30, 60, 90 and so on. One timer for any number of `restart`. */
export function watchSilence(clock: Clock, onSilence: (seconds: number) => void) {
  let since = 0;
  let reports = 0;
  let cancel: Cancel = () => {};

  function restart(): void {
    since = clock.monotonic();
    reports = 0;
  }

  function arm(): void {
    const due = since + (reports + 1) * REPORT_EVERY;
    cancel = clock.after(due - clock.monotonic(), () => {
      if (clock.monotonic() >= since + (reports + 1) * REPORT_EVERY) {
        reports++;
        onSilence((reports * REPORT_EVERY) / 1000);
      }
      arm();
    });
  }

  return {
    /** Starts or restarts the count. */
    start(): void {
      cancel();
      restart();
      arm();
    },
    /** An event arrived: the count starts again. */
    restart,
    stop: (): void => cancel(),
  };
}
