import { type Cancel, type Clock, systemClock } from '../../../lib/kit/clock.ts';

/** Milliseconds from which a timer becomes an alarm, since a pending timer keeps the object awake, which costs money. */
const MIN_ALARM_DELAY = 60_000;
/** Milliseconds within which two alarms count as the same. */
const SAME_TIME = 1_000;

/** The alarm of a Durable Object's storage. */
export interface AlarmStorage {
  setAlarm(time: number): Promise<void>;
  deleteAlarm(): Promise<void>;
}

/**
 * A clock whose long timers share the object's one alarm, which wakes it from a sleep. Their callbacks do not survive it:
 * owners set their timers again when the object wakes, before `alarm()` is called. `armed` is the time of an alarm that is
 * already set, epoch ms. `stop()` is for the clock of a relay that has ended, and makes it leave the alarm alone.
 */
export function createEdgeClock(storage: AlarmStorage, armed?: number): Clock & { alarm(): void; stop(): void } {
  const pending = new Map<symbol, { at: number; run: () => void }>();
  let isStopped = false;

  function arm(): void {
    if (isStopped) return;
    const next = Math.min(...[...pending.values()].map((timer) => timer.at));
    // A timer that is set again after a sleep may differ by a millisecond, which is not worth a write.
    if (armed !== undefined && Math.abs(next - armed) < SAME_TIME) return;
    if (next === Number.POSITIVE_INFINITY && armed === undefined) return;
    armed = Number.isFinite(next) ? next : undefined;
    void (armed === undefined ? storage.deleteAlarm() : storage.setAlarm(armed));
  }

  return {
    now: systemClock.now,
    // Workers have no monotonic clock. Theirs stands still while code runs and otherwise follows the wall clock.
    monotonic: systemClock.now,
    after(delay, run): Cancel {
      if (delay < MIN_ALARM_DELAY) return systemClock.after(delay, run);
      const id = Symbol();
      pending.set(id, { at: systemClock.now() + delay, run });
      arm();
      return () => {
        pending.delete(id);
        arm();
      };
    },
    alarm() {
      armed = undefined;
      const now = systemClock.now();
      for (const [id, timer] of [...pending]) {
        if (timer.at > now) continue;
        pending.delete(id);
        timer.run();
      }
      arm();
    },
    stop() {
      isStopped = true;
      pending.clear();
    },
  };
}
