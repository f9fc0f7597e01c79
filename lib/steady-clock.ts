import type { ClockRecord, Store } from '../storage/schema.ts';
import { describeError } from './errors.ts';
import { type Clock, every, isTime, seconds } from './kit/clock.ts';
import type { Log } from './log.ts';

/** Seconds between the last write and a start that suggest a wrong clock (contract 11 §2). */
const JUMP = 26 * 3600;
/** Seconds for which records that such a start found expired are set aside. */
const ASIDE = 24 * 3600;
/** Seconds by which a clock goes back when it is corrected, rather than only adjusted. */
const RETURN = 3600;
/** Milliseconds between two records of the time. */
const PERIOD = 15 * 60_000;
/** Seconds by which a correct clock may be before the last write, because of an adjustment. */
const ADJUSTED = 60;
/** Milliseconds with the same reading after which a clock counts as stopped. */
const STOPPED = 60_000;

/**
 * `ahead`: the clock may be wrong. `returned`: it has been set back. `over`: it has stayed where it was for a day, so it is
 * right.
 */
export type JumpState = 'ahead' | 'returned' | 'over';

/** A start long after the last write. */
export interface ClockJump {
  /** The last write before it, epoch seconds. Items that expired later may still be valid. */
  readonly from: number;
  state(): JumpState;
  /** Ends the handling of the jump: if the clock has returned, the time counts from `from` on again. */
  settle(): void;
}

/** The problem with the host's clock (contract 11 §5). Times in epoch seconds. */
export interface ClockProblem {
  /** `ahead`: an unsettled jump. `behind`: before the last write. `stopped`: its reading does not change. */
  state: 'ahead' | 'behind' | 'stopped';
  reads_at: number;
  last_write: number;
}

export interface SteadyClock extends Clock {
  /** The unsettled jump, if any. */
  jump(): ClockJump | undefined;
  problem(): ClockProblem | undefined;
  start(): void;
  stop(): Promise<void>;
}

export interface SteadyClockDeps {
  clock: Clock;
  store: Store<'clock'>;
  log: Log;
}

/** A clock that is never wrong, such as that of an object at the edge. */
export const trustedClock = (clock: Clock): SteadyClock => ({
  now: () => clock.now(),
  monotonic: () => clock.monotonic(),
  after: (delay, run) => clock.after(delay, run),
  jump: () => undefined,
  problem: () => undefined,
  start() {},
  async stop() {},
});

/**
 * The host's clock, but never before the last time at which the relay is known to have run, so that a clock that was set
 * back revives nothing. A clock that jumps ahead is reported by `jump`, so that a wrong clock loses nothing (contract 11
 * §2).
 */
export async function openSteadyClock({ clock, store, log }: SteadyClockDeps): Promise<SteadyClock> {
  const started = seconds(clock);
  const stored = await readRecord(store);
  let record: ClockRecord = stored ?? { at: started };

  // A jump lasts until the clock has returned, or has proved right.
  if (!record.jump && started > record.at + JUMP) {
    record = { at: record.at, jump: { from: record.at, at: started } };
    log.warn(
      `the clock is ${hours(started - record.at)} hours after the last write: if it is wrong, set it right within a day, ` +
        'and devices whose session has ended meanwhile are back',
    );
  } else if (!record.jump && started < record.at) {
    log.warn(
      `the clock is at ${iso(started)}, before the last write: ${iso(record.at)} counts until it has passed that`,
    );
  }

  const floor = () => record.jump?.from ?? record.at;
  /** When the clock first had its present reading, by monotonic time. */
  let moved = { now: clock.now(), monotonic: clock.monotonic() };
  /** Every call of `now` helps to notice that the clock stands still. */
  function read(): number {
    const now = clock.now();
    if (now !== moved.now) moved = { now, monotonic: clock.monotonic() };
    return now;
  }
  const now = () => Math.max(read(), floor() * 1000);

  function problem(): ClockProblem | undefined {
    const facts = { reads_at: read() / 1000, last_write: floor() };
    if (facts.reads_at < facts.last_write - ADJUSTED) return { state: 'behind', ...facts };
    if (clock.monotonic() - moved.monotonic >= STOPPED) return { state: 'stopped', ...facts };
    return record.jump && jump.state() === 'ahead' ? { state: 'ahead', ...facts } : undefined;
  }

  function save(): Promise<void> {
    if (!record.jump) record = { at: now() / 1000 };
    return store.setItem('clock', record).catch((error) => {
      log.warn(`the time of the last write could not be saved: ${describeError(error)}`);
    });
  }

  /** The end of the jump, for callers after the one that settled it. */
  let outcome: JumpState | undefined;
  const jump: ClockJump = {
    get from() {
      return record.jump?.from ?? record.at;
    },
    state() {
      if (outcome) return outcome;
      const { at = started } = record.jump ?? {};
      const reads = seconds(clock);
      if (reads < at - RETURN) return 'returned';
      return reads >= at + ASIDE ? 'over' : 'ahead';
    },
    settle() {
      if (!record.jump) return;
      outcome = jump.state();
      record = { at: record.jump.from };
      void save();
    },
  };
  await save();
  let cancel = () => {};
  return {
    now,
    monotonic: () => clock.monotonic(),
    after: (delay, run) => clock.after(delay, run),
    jump: () => (record.jump ? jump : undefined),
    problem,
    start() {
      cancel = every(clock, PERIOD, save, (error) => log.error(`saving the time failed: ${describeError(error)}`));
    },
    async stop() {
      cancel();
      await save();
    },
  };
}

async function readRecord(store: Store<'clock'>): Promise<ClockRecord | undefined> {
  const record = await store.getItem('clock');
  if (!record || !isTime(record.at, 1000)) return undefined;
  const { at, jump } = record;
  return jump && isTime(jump.from, 1000) && isTime(jump.at, 1000) ? { at, jump } : { at };
}

const hours = (duration: number) => Math.round(duration / 3600);
const iso = (at: number) => new Date(at * 1000).toISOString();
