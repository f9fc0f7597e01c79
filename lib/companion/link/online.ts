import type { Cancel, Clock } from '../../kit/clock.ts';

const STATUS_PERIOD = 30_000;
const WATCH_PERIOD = 15_000;
/** After this much silence the relay is asked whether it is there, and after `SILENT_FOR` it is given up. */
const ASK_AFTER = 45_000;
const SILENT_FOR = 75_000;

export interface OnlineParts {
  clock: Clock;
  /** When the relay was last heard of, in monotonic milliseconds. */
  heard(): number;
  ping(): void;
  giveUp(reason: string): void;
  /** Absent where nothing is to be reported. */
  status?: { send(): void; onChange(listener: () => void): Cancel };
}

/**
 * What goes on while the link holds: `bridge.status` now, every 30 s and at once on a change (contract 03 §1.3), and a
 * watch on the relay's silence. Returns its end.
 */
export function keepOnline({ clock, heard, ping, giveUp, status }: OnlineParts): Cancel {
  const ends: Cancel[] = [];
  const again = (period: number, run: () => void) => {
    let cancel: Cancel;
    const arm = () => {
      cancel = clock.after(period, () => {
        arm();
        run();
      });
    };
    arm();
    ends.push(() => cancel());
  };
  again(WATCH_PERIOD, () => {
    const silent = clock.monotonic() - heard();
    if (silent >= SILENT_FOR) giveUp(`nothing was heard for ${Math.round(silent / 1000)} s`);
    else if (silent >= ASK_AFTER) ping();
  });
  if (status) {
    ends.push(status.onChange(status.send));
    again(STATUS_PERIOD, status.send);
    status.send();
  }
  return () => {
    for (const end of ends.splice(0)) end();
  };
}
