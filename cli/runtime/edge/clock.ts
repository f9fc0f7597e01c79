import { type Cancel, type Clock, systemClock } from '../../../lib/kit/clock.ts';

/** A pending timer keeps a Durable Object awake (and paid for): longer waits are left to its alarm. */
const ALARM_FROM = 60_000;

/** The part of a Durable Object's storage that is used. */
export interface AlarmStorage {
  setAlarm(time: number): Promise<void>;
  deleteAlarm(): Promise<void>;
}

/**
 * A clock whose long timers survive the object's sleep as its one alarm. What a timer does is not kept: whoever
 * needs it arms it again when the object wakes, before `alarm()` is called.
 */
export function createEdgeClock(storage: AlarmStorage): Clock & { alarm(): void } {
  const pending = new Map<symbol, { at: number; run: () => void }>();
  let armed: number | undefined;

  function arm(): void {
    const next = Math.min(...[...pending.values()].map((timer) => timer.at));
    if (next === armed) return;
    armed = Number.isFinite(next) ? next : undefined;
    void (armed === undefined ? storage.deleteAlarm() : storage.setAlarm(armed));
  }

  return {
    now: systemClock.now,
    // Workers have no monotonic clock: time stands still while code runs and is the wall's otherwise.
    monotonic: systemClock.now,
    after(delay, run): Cancel {
      if (delay < ALARM_FROM) return systemClock.after(delay, run);
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
  };
}
