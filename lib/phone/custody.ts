import type { MessageStanding } from '../../storage/schema.ts';

/**
 * In the order in which home and the edge let a message advance. An event at one side outweighs the other side's
 * treatment of its copy: a message that has arrived was not cancelled, and an answer was given even if nobody waited
 * any more.
 */
const ORDER: readonly MessageStanding[] = [
  'queued',
  'dropped',
  'expired',
  'cancelled',
  'sent',
  'shown',
  'withdrawn',
  'answered',
];

export const isStanding = (value: unknown): value is MessageStanding => ORDER.includes(value as MessageStanding);

/** True if a message has advanced from `before` to `now`. */
export const isLater = (now: MessageStanding, before: MessageStanding): boolean =>
  ORDER.indexOf(now) > ORDER.indexOf(before);

export const laterOf = (a: MessageStanding, b: MessageStanding): MessageStanding => (isLater(b, a) ? b : a);

/** Knowledge of one relay of the mirror when messages wait at it. */
export interface Situation {
  side: 'home' | 'edge';
  isLinked: boolean;
  /** A phone listens to this relay. */
  isHeardHere: boolean;
  /** A phone listens to the other one. */
  isHeardThere: boolean;
}

/**
 * True if a relay gives the messages that wait at it to the other one (contract 12 §2). The edge keeps what no phone at
 * home is there for: it is the one that can always call devices.
 */
export const givesAway = ({ side, isLinked, isHeardHere, isHeardThere }: Situation): boolean =>
  isLinked && !isHeardHere && (side === 'home' || isHeardThere);

/** Knowledge of a relay about a message that the other one gives to it. */
export interface Known {
  /** Undefined for a message of which it has no record. */
  standing: MessageStanding | undefined;
  /** It has arrived at a device. */
  hasArrived: boolean;
  /** It waits here, or was written to a phone that has yet to prove that it has come. */
  isHeld: boolean;
}

/**
 * Treatment of a message that the other relay gives: `take` it, `keep` the copy that is here, or `tell` what has become
 * of it. In each case the other one may drop its copy.
 */
export function reception({ standing, hasArrived, isHeld }: Known): 'take' | 'keep' | 'tell' {
  if (hasArrived) return 'tell';
  if (isHeld) return 'keep';
  // `sent` without a proof, and held by nobody: it was written to a phone and lost.
  return standing === undefined || standing === 'queued' || standing === 'sent' ? 'take' : 'tell';
}
