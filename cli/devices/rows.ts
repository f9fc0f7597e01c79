import { asObject } from '../../lib/kit/json.ts';
import { grantsLeft as allLeft, type Liveness, livenessOf } from '../../lib/operator/device-state.ts';
import { printable, printableText } from '../output.ts';

/** A paired device and its connections. All text is safe for a terminal. */
export interface Device extends Liveness {
  /** First characters of its session. */
  prefix: string;
  name: string;
  platform: string;
  /** Epoch seconds; null for never. */
  expiresAt: number | null;
  grants: Record<string, unknown>;
  /** True if its session ends so soon that the relay warns about it. */
  endsSoon: boolean;
  /** Its connection, such as `direct`; empty when it is not. */
  route: string;
  /** The row as the relay sent it. */
  raw: Record<string, unknown>;
}

const number = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : null);
export const objects = (value: unknown) => (Array.isArray(value) ? value.map((item) => asObject(item) ?? {}) : []);

/** The rows of `GET /relay/devices` (contract 09 §2). `now` is epoch seconds. */
export const devicesOf = ({ devices }: Record<string, unknown>, now: number): Device[] =>
  objects(devices).map((raw) => ({
    prefix: printableText(raw.token_prefix),
    name: printableText(raw.device_name),
    platform: printableText(raw.device_platform) || printableText(raw.client_surface),
    ...livenessOf(raw, now),
    expiresAt: number(raw.expires_at),
    grants: asObject(raw.grants) ?? {},
    endsSoon: raw.ends_soon === true,
    route:
      objects(raw.connections)
        .map(({ route }) => printableText(route))
        .find((route) => route !== '') ?? '',
    raw,
  }));

/** Grants that are left, each with its time where it ends before the session. `now` is epoch seconds. */
export function grantsLeft({ grants, expiresAt }: Pick<Device, 'grants' | 'expiresAt'>, now: number): string {
  const left = allLeft(grants, expiresAt, now).map(({ name, seconds }) =>
    seconds === null ? printable(name) : `${printable(name)} ${duration(seconds)}`,
  );
  return [...new Set(left)].join(', ') || 'none';
}

/** Seconds in one unit: `34 s`, `12 min`, `30 h`, `29 d`. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '?';
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  return whole < 2 * 86_400 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86_400)} d`;
}

/** `Pixel 9 (android, session 3f9c2a10)`. */
export const nameOf = ({ name, platform, prefix }: Pick<Device, 'name' | 'platform' | 'prefix'>): string =>
  `${name} (${platform}, session ${prefix})`;
