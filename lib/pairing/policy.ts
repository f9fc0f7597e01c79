import type { PairingCodeRecord } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { isObject } from '../kit/json.ts';
import { GRANTS, type Policy } from '../sessions/grants.ts';
import type { TransportHint } from '../sessions/session.ts';

/** The policy that the host chose for the device that presents the code. */
export interface CodePolicy extends Policy {
  transportHint?: TransportHint;
}

/** Seconds: a hundred years (contract 01 §5.2). */
export const MAX_DURATION = 3_153_600_000;
export const MAX_GRANTS = 32;
export const CHANNEL_NAME = /^[a-z][a-z0-9:_-]{0,63}$/;
const HINTS: readonly unknown[] = ['wss', 'ws', 'unknown'] satisfies TransportHint[];

const invalid = (message: string) => new RelayError('invalid', message);

function duration(value: unknown, field: string): number {
  if (typeof value !== 'number' || !(value >= 0 && value <= MAX_DURATION)) {
    throw invalid(`${field} must be a number of seconds from 0 (never) to ${MAX_DURATION}`);
  }
  return Math.ceil(value);
}

function durations(value: unknown): Record<string, number> {
  if (!isObject(value)) throw invalid('grants must be an object of channel names and seconds');
  const entries = Object.entries(value);
  if (entries.length > MAX_GRANTS) throw invalid(`grants must name at most ${MAX_GRANTS} channels`);
  return Object.fromEntries(
    entries.map(([channel, seconds]) => {
      if (!CHANNEL_NAME.test(channel)) throw invalid('grants has a key that is not a channel name');
      return [channel, duration(seconds, `grants.${channel}`)];
    }),
  );
}

function grantNames(value: unknown): string[] {
  if (!Array.isArray(value)) throw invalid('without must be an array of grant names');
  const unknown = value.find((name) => !GRANTS.includes(name));
  if (unknown !== undefined) throw invalid(`without names a grant that does not exist: use ${GRANTS.join(', ')}`);
  return [...new Set(value)];
}

/**
 * Reads the policy of a code from the body of register, approve or mint: `ttl_seconds`, `grants`, `without` and
 * `transport_hint`, each absent if missing or `null`. Durations are whole seconds, 0 = never; the names in `grants` need not
 * be known, those in `without` do (contract 01 §5.2, 09 §1).
 * @throws RelayError `invalid` naming the field.
 */
export function readPolicy(body: Record<string, unknown>): CodePolicy {
  const policy: CodePolicy = {};
  const { ttl_seconds: ttl, grants, without, transport_hint: hint } = body;
  if (ttl != null) policy.ttlSeconds = duration(ttl, 'ttl_seconds');
  if (grants != null) {
    const named = durations(grants);
    // An empty map would raise the format marker of a QR payload without need.
    if (Object.keys(named).length > 0) policy.grants = named;
  }
  if (without != null) {
    const names = grantNames(without);
    if (names.length > 0) policy.without = names;
  }
  if (hint != null) {
    if (!HINTS.includes(hint)) throw invalid('transport_hint must be wss, ws or unknown');
    policy.transportHint = hint as TransportHint;
  }
  return policy;
}

/** The side of the mirror at which a code is valid (contract 12 §2). */
export type Redeemer = 'home' | 'edge';

/** Reads `redeem` from the body of register or mint. @throws RelayError `invalid` for anything else. */
export function readRedeemer({ redeem }: Record<string, unknown>): Redeemer | undefined {
  if (redeem == null) return undefined;
  if (redeem !== 'home' && redeem !== 'edge') throw invalid('redeem must be home or edge');
  return redeem;
}

/** The policy of a stored code. */
export type PolicyRecord = Pick<PairingCodeRecord, 'ttl_seconds' | 'grants' | 'without' | 'transport_hint'>;

/** A policy in the form that `readPolicy` reads. */
export const policyBody = ({ ttlSeconds, grants, without, transportHint }: CodePolicy): PolicyRecord => ({
  ...(ttlSeconds !== undefined && { ttl_seconds: ttlSeconds }),
  ...(grants && { grants }),
  ...(without && { without }),
  ...(transportHint && { transport_hint: transportHint }),
});

const describeSeconds = (seconds: number): string => (seconds === 0 ? 'never' : `${seconds} s`);

/** A policy as text for the log. */
export function describePolicy({ ttlSeconds, grants = {}, without = [], transportHint }: CodePolicy): string {
  const named = Object.entries(grants).map(([channel, seconds]) => `${channel}=${describeSeconds(seconds)}`);
  return [
    `lifetime ${ttlSeconds === undefined ? 'default' : describeSeconds(ttlSeconds)}`,
    `grants ${named.join(' ') || 'default'}${without.length > 0 ? ` without ${without.join(' ')}` : ''}`,
    `transport ${transportHint ?? 'as met'}`,
  ].join(', ');
}
