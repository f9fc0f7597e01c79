import type { ClockRecord, Store } from '../storage/schema.ts';
import { describeError } from './errors.ts';
import { type Clock, every, seconds } from './kit/clock.ts';
import type { Log } from './log.ts';

/** Seconds after the last write from which a start means that the clock may be wrong (contract 11 §2). */
const JUMP = 26 * 3600;
/** Seconds for which what such a start found expired is kept aside. */
const ASIDE = 24 * 3600;
/** Seconds by which a clock goes back when it is set right, and not only adjusted. */
const RETURN = 3600;
/** Milliseconds between two records of the time. */
const PERIOD = 15 * 60_000;
/** Seconds by which a clock may be before the last write without being wrong: what an adjustment takes back. */
const ADJUSTED = 60;
/** Milliseconds that have to pass before a clock that reads the same has stopped. */
const STOPPED = 60_000;

/**
 * `ahead`: the clock may be wrong. `returned`: it has been set back. `over`: it has stayed where it was for a day, so it is
 * right.
 */
export type JumpState = 'ahead' | 'returned' | 'over';

/** A start long after the last write. */
export interface ClockJump {
  /** The last write before it, epoch seconds: what ended later may not be over. */
  readonly from: number;
  state(): JumpState;
  /** The jump is dealt with: the time counts from `from` on again when the clock has returned. */
  settle(): void;
}

/** The problem with the host's clock (contract 11 §5). Times in epoch seconds. */
export interface ClockProblem {
  /** `ahead`: a jump that is not settled. `behind`: before the last write. `stopped`: it reads the same all the time. */
  state: 'ahead' | 'behind' | 'stopped';
  reads_at: number;
  last_write: number;
}

export interface SteadyClock extends Clock {
  /** The jump that is not settled yet, if there was one. */
  jump(): ClockJump | undefined;
  problem(): ClockProblem | undefined;
  start(): void;
  stop(): Promise<void>;
}

export interface SteadyClockParts {
  clock: Clock;
  store: Store<'clock'>;
  log: Log;
}

/** A clock that is never wrong: that of an object at the edge. */
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
 * The host's clock, but never before the last moment at which the relay is known to have run: a clock that was set back
 * revives nothing. A clock that leaps ahead is reported by `jump`, so that nothing is lost to one that is wrong
 * (contract 11 §2).
 */
export async function openSteadyClock({ clock, store, log }: SteadyClockParts): Promise<SteadyClock> {
  const started = seconds(clock);
  const stored = await readRecord(store);
  let record: ClockRecord = stored ?? { at: started };

  // A jump stays until the clock has returned, or has proved right.
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
  /** When the clock first read what it reads, by monotonic time. */
  let moved = { now: clock.now(), monotonic: clock.monotonic() };
  /** Every caller of `now` takes part in noticing that the clock stands still. */
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
  if (!record || !Number.isFinite(record.at)) return undefined;
  const { at, jump } = record;
  return jump && Number.isFinite(jump.from) && Number.isFinite(jump.at) ? { at, jump } : { at };
}

const hours = (duration: number) => Math.round(duration / 3600);
const iso = (at: number) => new Date(at * 1000).toISOString();
