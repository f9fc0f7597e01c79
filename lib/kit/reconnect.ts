/** Milliseconds of the first wait; each further one is twice as long. */
const FIRST_WAIT = 1_000;
/** Milliseconds after which a connection counts as steady, so that the waits start again from the first. */
export const STEADY_AFTER = 30_000;
/** Milliseconds below which a connection counts as useless, so that the waits keep growing. */
const USEFUL_AFTER = 1_000;
/** Milliseconds after the end of a connection in which a restarting host is retried often. */
export const QUICK_FOR = 15_000;
export const QUICK_WAIT = { min: 500, max: 2_000 };
/** Consecutive connections that ended before they were steady, after which there are no quick attempts. */
export const MAX_INTERRUPTIONS = 20;
/** Quick attempts after the first 15 s while a person waits for the connection: about twelve minutes of them. */
export const MAX_ATTENDED = 600;

/**
 * How a connection, or an attempt, ended. `restarting`: the other side announced a short absence (close 1001 or 1012).
 * `refused`: nothing listens there. `broken`: the connection ended without a close frame.
 */
export type Ending = 'restarting' | 'refused' | 'broken' | 'other';

/** A client's waits, in milliseconds. */
export interface Pace {
  /** The longest wait. */
  max: number;
  /**
   * Range of the wait before the first attempt after a useful connection has broken. Without it, that wait is like any
   * other.
   */
  afterBreak?: { min: number; max: number };
  /** Added to a wait after multiplication with a random number from [0, 1). May be negative. */
  jitter(wait: number): number;
}

/** A client's state between attempts. */
export interface Attempts {
  /** Failures since the waits last started again. */
  readonly failures: number;
  readonly interruptions: number;
  /** End of the quick attempts, monotonic milliseconds. */
  readonly quickUntil: number;
  /** Quick attempts since the last connection that were made because a person is waiting. */
  readonly attended: number;
}

export const NO_ATTEMPTS: Attempts = {
  failures: 0,
  interruptions: 0,
  quickUntil: Number.NEGATIVE_INFINITY,
  attended: 0,
};

/** One end of a connection; `lasted` is in milliseconds, null if it was never open. */
export interface Outcome {
  ending: Ending;
  lasted: number | null;
}

export interface Retry {
  attempts: Attempts;
  /** Milliseconds until the next attempt. */
  wait: number;
}

/**
 * The reconnect policy of every client (issue 23 §2.4): after a restart of the other side, or while nothing listens at
 * a host that has just answered, every 0.5 to 2 s for the first 15 s; else 1 s doubling to the longest wait. Both have
 * jitter, so that clients that lost the same host do not all return at once. While a person is watching (`isAttended`)
 * and nothing listens at the host, it keeps retrying as often, so that it reconnects within 2 s.
 * @param random in [0, 1)
 */
export function nextAttempt(
  before: Attempts,
  { ending, lasted }: Outcome,
  { now, random, isAttended = false }: { now: number; random: number; isAttended?: boolean },
  pace: Pace,
): Retry {
  const attempts = lasted === null ? before : afterConnection(before, ending, lasted, now);
  if ((ending === 'restarting' || ending === 'refused') && now < attempts.quickUntil) {
    return { attempts, wait: between(QUICK_WAIT, random) };
  }
  const { failures, interruptions, attended } = attempts;
  if (isAttended && ending === 'refused' && interruptions <= MAX_INTERRUPTIONS && attended < MAX_ATTENDED) {
    return { attempts: { ...attempts, attended: attended + 1 }, wait: between(QUICK_WAIT, random) };
  }
  // After too many interruptions, there is no quick window.
  const isUseful = lasted !== null && lasted >= USEFUL_AFTER && now < attempts.quickUntil;
  if (pace.afterBreak && ending === 'broken' && isUseful) return { attempts, wait: between(pace.afterBreak, random) };
  return { attempts: { ...attempts, failures: failures + 1 }, wait: backoff(failures, random, pace) };
}

function afterConnection(before: Attempts, ending: Ending, lasted: number, now: number): Attempts {
  const isSteady = lasted >= STEADY_AFTER;
  const interruptions = isSteady ? 0 : before.interruptions + 1;
  if (interruptions > MAX_INTERRUPTIONS) {
    return { ...before, interruptions, quickUntil: NO_ATTEMPTS.quickUntil, attended: 0 };
  }
  const isAnew = isSteady || ending === 'restarting' || (ending === 'broken' && lasted >= USEFUL_AFTER);
  return { failures: isAnew ? 0 : before.failures, interruptions, quickUntil: now + QUICK_FOR, attended: 0 };
}

const between = ({ min, max }: { min: number; max: number }, random: number): number =>
  Math.round(min + random * (max - min));

/** Milliseconds to wait after so many failures. */
export function backoff(failures: number, random: number, { max, jitter }: Pace): number {
  const wait = Math.min(max, FIRST_WAIT * 2 ** Math.min(failures, 16));
  return Math.round(wait + random * jitter(wait));
}

/** Classifies the end of a WebSocket, or of an attempt to open one. A proxy whose server is away answers 502 or 503. */
export function endingOf({ code, status, isRefused }: { code: number; status?: number; isRefused?: boolean }): Ending {
  if (isRefused || status === 502 || status === 503) return 'refused';
  if (code === 1001 || code === 1012) return 'restarting';
  return code === 1006 && status === undefined ? 'broken' : 'other';
}
