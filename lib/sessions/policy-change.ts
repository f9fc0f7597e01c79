import { RelayError } from '../errors.ts';
import { applyPolicy, clamp, type Expiry, earlier, endsLater, fromNow, type Grants, type Policy } from './grants.ts';
import type { Session } from './session.ts';

/** Body of a `PATCH /sessions/{prefix}`: durations in seconds from now, 0 = never. */
export interface Reduction {
  ttlSeconds?: number;
  grants?: Record<string, number>;
  /** Grants to remove completely (contract 11 §2). */
  without?: readonly string[];
}

/** The values that a change of a session's policy sets. */
export type PolicyChange = Pick<Session, 'expiresAt' | 'grants' | 'terminalReduced'>;

/**
 * A session's policy after a reduction at `now` (contract 01 §6.4).
 * @throws RelayError `invalid` for a grant that the session does not have, `forbidden` for any extension.
 */
export function reducedPolicy(session: Session, reduction: Reduction, now: number): PolicyChange {
  const { ttlSeconds, without = [] } = reduction;
  const wanted = Object.entries(reduction.grants ?? {});
  const named = [...wanted.map(([channel]) => channel), ...without];
  if (named.some((channel) => !Object.hasOwn(session.grants, channel))) {
    throw new RelayError('invalid', 'grants and without name only channels that this session has');
  }
  const expiresAt: Expiry = ttlSeconds === undefined ? session.expiresAt : fromNow(ttlSeconds, now);
  if (endsLater(expiresAt, session.expiresAt)) {
    throw new RelayError('forbidden', 'operator approval required to extend session');
  }
  const changes: Grants = {};
  for (const [channel, duration] of wanted) {
    changes[channel] = fromNow(duration, now);
    if (endsLater(changes[channel], session.grants[channel] as Expiry)) {
      throw new RelayError('forbidden', 'operator approval required to extend a grant');
    }
  }
  const grants = clamp({ ...session.grants, ...changes }, expiresAt);
  for (const name of without) delete grants[name];
  return changeTo(session, expiresAt, grants);
}

/**
 * A session's policy combined with that of another side, which may have reduced it too: the earlier end of each wins
 * (contract 12 §2).
 */
export function narrowedPolicy(session: Session, other: { expiresAt: Expiry; grants: Grants }): PolicyChange {
  const expiresAt = earlier(session.expiresAt, other.expiresAt);
  const shared = Object.entries(session.grants).filter(([name]) => Object.hasOwn(other.grants, name));
  const grants = Object.fromEntries(shared.map(([name, end]) => [name, earlier(end, other.grants[name] as Expiry)]));
  return changeTo(session, expiresAt, clamp(grants, expiresAt));
}

/** A change that only removes rights, and whether the shells of the device end with it. */
function changeTo(session: Session, expiresAt: Expiry, grants: Grants): PolicyChange {
  const before = session.grants.terminal;
  const after = grants.terminal;
  const isTerminalReduced = before !== undefined && (after === undefined || endsLater(before, after));
  return { expiresAt, grants, terminalReduced: session.terminalReduced || isTerminalReduced || undefined };
}

/**
 * A session's renewed policy, counted from `now` (contract 11 §2), with the lifetime `ttlSeconds` if given, else that of the
 * pairing. A grant that the session has lost does not return.
 * @throws RelayError `invalid` if the session would end earlier than now.
 */
export function extendedPolicy(
  session: Session,
  ttlSeconds: number | undefined,
  now: number,
): PolicyChange & Pick<Session, 'policy' | 'grantedAt'> {
  const policy: Policy = ttlSeconds === undefined ? session.policy : { ...session.policy, ttlSeconds };
  const { expiresAt, grants } = applyPolicy(policy, now);
  if (endsLater(session.expiresAt, expiresAt)) {
    throw new RelayError('invalid', 'the session would end earlier than it does: reduce it instead');
  }
  const own = Object.fromEntries(Object.entries(grants).filter(([name]) => Object.hasOwn(session.grants, name)));
  // Shells that are to end continue only with a grant that continues.
  const terminalReduced = own.terminal === undefined ? session.terminalReduced : undefined;
  return { expiresAt, grants: own, terminalReduced, policy, grantedAt: now };
}
