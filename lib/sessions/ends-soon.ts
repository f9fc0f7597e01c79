import { DAY } from './grants.ts';
import type { Session } from './session.ts';

/** Seconds before its end at which a session is reported, and at which its device gets a push (contract 11 §2). */
export const WARN_BEFORE = 7 * DAY;
const PUSH_BEFORE = 3 * DAY;
/** A session shorter than two weeks is reported in its last quarter. */
const SHORT = 14 * DAY;

type Ends = Pick<Session, 'expiresAt' | 'grantedAt'>;

function warnedFor({ expiresAt, grantedAt }: Ends): number {
  const life = expiresAt === null ? Number.POSITIVE_INFINITY : expiresAt - grantedAt;
  return life < SHORT ? life / 4 : WARN_BEFORE;
}

/** True if a session ends so soon that its owner is notified. `now` is epoch seconds. */
export const endsSoon = (session: Ends, now: number): boolean =>
  session.expiresAt !== null && session.expiresAt - now <= warnedFor(session);

/** True if the device of a session has to get its single push about the end. */
export const needsNotice = (session: Ends & Pick<Session, 'noticedExpiry'>, now: number): boolean =>
  session.expiresAt !== null &&
  session.noticedExpiry !== session.expiresAt &&
  session.expiresAt - now <= Math.min(PUSH_BEFORE, warnedFor(session));
