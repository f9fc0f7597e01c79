import { asObject } from '../kit/json.ts';
import { STALE_AFTER } from '../socket/stale.ts';

export type DeviceState = 'connected' | 'stale' | 'offline';

export interface Liveness {
  state: DeviceState;
  /** Seconds: since it connected, since its last sign of life (`stale`), or since it was last seen (`offline`). */
  age: number;
  /** Milliseconds since the last sign of life; null without a connection. */
  proofAge: number | null;
  /** Milliseconds; null without a connection or a measurement. */
  roundTrip: number | null;
}

const number = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : null);

/**
 * The state of a device in `GET /relay/devices`, from its connection with the latest sign of life. `now` is epoch seconds,
 * `elapsed` the milliseconds since the relay sent the row.
 */
export function livenessOf(row: Record<string, unknown>, now: number, elapsed = 0): Liveness {
  const rows = Array.isArray(row.connections) ? row.connections.map((item) => asObject(item) ?? {}) : [];
  const connections = rows.map((connection) => ({
    since: number(connection.since) ?? now,
    proofAge: (number(connection.proof_age_ms) ?? Number.POSITIVE_INFINITY) + elapsed,
    isStale: connection.stale !== false,
    roundTrip: number(connection.rtt_ms),
  }));
  const [best] = connections.sort((a, b) => a.proofAge - b.proofAge);
  if (!best) {
    return { state: 'offline', age: Math.max(0, now - (number(row.last_seen) ?? 0)), proofAge: null, roundTrip: null };
  }
  const { proofAge } = best;
  if (best.isStale || proofAge > STALE_AFTER)
    return { state: 'stale', age: proofAge / 1000, proofAge, roundTrip: null };
  const { roundTrip } = connections.find((one) => !one.isStale && one.roundTrip !== null) ?? best;
  return { state: 'connected', age: Math.max(0, now - best.since), proofAge, roundTrip };
}

/** A grant of a device, and the seconds until it ends if that is before its session; else null. */
export interface GrantLeft {
  name: string;
  seconds: number | null;
}

/** The remaining grants, with those of voice as one. `now` is epoch seconds. */
export function grantsLeft(grants: Record<string, unknown>, expiresAt: number | null, now: number): GrantLeft[] {
  const left = new Map<string, GrantLeft>();
  for (const [grant, expiry] of Object.entries(grants)) {
    const name = grant.startsWith('voice:') ? 'voice' : grant;
    const end = number(expiry);
    if (expiry === null || expiry === expiresAt) left.set(`${name} `, { name, seconds: null });
    else if (end !== null && end > now) left.set(`${name} ${Math.round(end)}`, { name, seconds: end - now });
  }
  return [...left.values()];
}
