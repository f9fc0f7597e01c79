import { isTime } from '../kit/clock.ts';
import { asObject } from '../kit/json.ts';
import type { ClockProblem } from '../steady-clock.ts';

/** `clock_problem` of `GET /relay/info` (contract 11 §5): times in epoch seconds. */
export interface ClockProblemFacts extends ClockProblem {
  /** Number of sessions set aside because of it. */
  kept_aside: number;
}

const STATES: readonly unknown[] = ['ahead', 'behind', 'stopped'] satisfies ClockProblem['state'][];

const SET = 'Set the clock of that machine, for example with: timedatectl set-ntp true';

/** Null if the relay reports no problem with its clock, or one unknown to this version. */
export function readClockProblem(info: unknown): ClockProblemFacts | null {
  const { state, reads_at, last_write, kept_aside } = asObject(asObject(info)?.clock_problem) ?? {};
  if (!STATES.includes(state) || !isTime(reads_at, 1000) || !isTime(last_write, 1000)) return null;
  return {
    state,
    reads_at,
    last_write,
    kept_aside: typeof kept_aside === 'number' ? kept_aside : 0,
  } as ClockProblemFacts;
}

/** Describes the problem with the clock of the relay's machine. */
export function clockText({ state, reads_at, last_write, kept_aside }: ClockProblemFacts): string {
  const reads = `the clock reads ${minuteOf(reads_at)}`;
  if (state === 'stopped') return `${reads}, and stands still: nothing ends on time`;
  if (state === 'behind')
    return `${reads}, before the last write: ${minuteOf(last_write)} counts until it has passed that`;
  const sessions = kept_aside === 1 ? '1 session that has' : `${kept_aside} sessions that have`;
  return `${reads}, long after the last write at ${minuteOf(last_write)}: ${sessions} ended by it can come back for a day`;
}

/** The next step. */
export const clockAdvice = ({ state }: ClockProblemFacts): string =>
  state === 'ahead'
    ? `If the clock is wrong, set it right within a day. If it is right, see who has to pair again: svc devices --ended`
    : SET;

/** `2026-11-24 14:02 UTC`, of epoch seconds. */
export const minuteOf = (at: number): string =>
  `${new Date(at * 1000).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
