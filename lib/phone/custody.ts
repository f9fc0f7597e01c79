import type { MessageStanding } from '../../storage/schema.ts';

/**
 * In the order of a message's progress at home and at the edge. Progress at one side overrides the other side's handling of
 * its copy: a message that has arrived was not cancelled, and an answer counts even if nobody waited any more.
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

/** True if a message has progressed from `before` to `now`. */
export const isLater = (now: MessageStanding, before: MessageStanding): boolean =>
  ORDER.indexOf(now) > ORDER.indexOf(before);

export const laterOf = (a: MessageStanding, b: MessageStanding): MessageStanding => (isLater(b, a) ? b : a);

/** What a relay of the mirror knows when messages wait there. */
export interface Situation {
  side: 'home' | 'edge';
  isLinked: boolean;
  /** A phone listens at this relay. */
  isHeardHere: boolean;
  /** A phone listens at the other relay. */
  isHeardThere: boolean;
}

/**
 * True if a relay hands its waiting messages to the other one (contract 12 §2). The edge keeps messages while no phone
 * listens at home, since the edge can always notify devices.
 */
export const givesAway = ({ side, isLinked, isHeardHere, isHeardThere }: Situation): boolean =>
  isLinked && !isHeardHere && (side === 'home' || isHeardThere);

/** What a relay knows about a message that the other one hands over. */
export interface Known {
  /** Undefined for an unknown message. */
  standing: MessageStanding | undefined;
  /** True if it has arrived at a device. */
  hasArrived: boolean;
  /** True if it waits here, or was written to a phone that has not yet proved its arrival. */
  isHeld: boolean;
}

/**
 * Handling of a message from the other relay: `take` it, `keep` the copy that is here, or `tell` the other relay its state.
 * In each case the other relay may drop its copy.
 */
export function reception({ standing, hasArrived, isHeld }: Known): 'take' | 'keep' | 'tell' {
  if (hasArrived) return 'tell';
  if (isHeld) return 'keep';
  // `sent` without proof of arrival, and no longer held: it was written to a phone and lost. `dropped`: it was given up, but
  // the other relay still has it.
  return standing === undefined || ['queued', 'sent', 'dropped'].includes(standing) ? 'take' : 'tell';
}
