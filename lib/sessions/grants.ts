/** Absolute end in epoch seconds; `null` = never. A channel that is not listed has no grant (contract 01 §6.2). */
export type Expiry = number | null;
export type Grants = Record<string, Expiry>;

/** The host's policy for a new session: durations in seconds from now, 0 = never. */
export interface Policy {
  ttlSeconds?: number;
  grants?: Record<string, number>;
  /** Grants that the session does not get at all. Overrides `grants`. */
  without?: string[];
}

export const DAY = 86_400;
const DEFAULT_TTL = 30 * DAY;

/**
 * Every default grant of a session, with its maximum duration in seconds; `Infinity` for as long as the session (contract 01
 * §6.2). Not all of them are channels: `files` are media, uploads and the clipboard inbox, `profiles` the profile routes,
 * `phone` messages, replies and notifications, `devices` the sessions of other devices.
 */
const DEFAULT_LIMIT: Record<string, number> = {
  chat: Infinity,
  'voice:config': Infinity,
  'voice:stt': Infinity,
  'voice:tts': Infinity,
  'voice:realtime': Infinity,
  terminal: 30 * DAY,
  tui: 30 * DAY,
  desktop: 30 * DAY,
  bridge: 7 * DAY,
  files: Infinity,
  profiles: Infinity,
  phone: Infinity,
  devices: Infinity,
};

/** Names of the default grants. */
export const GRANTS: readonly string[] = Object.keys(DEFAULT_LIMIT);

/** The earlier of two ends. */
export const earlier = (a: Expiry, b: Expiry): Expiry => (a === null ? b : b === null ? a : Math.min(a, b));

/** True if `a` ends after `b`. */
export const endsLater = (a: Expiry, b: Expiry): boolean => b !== null && (a === null || a > b);

export const isPast = (expiry: Expiry, now: number): boolean => expiry !== null && expiry <= now;

/** A duration counted from `now`, where 0 means never. */
export const fromNow = (duration: number, now: number): Expiry => (duration === 0 ? null : now + duration);

/** End of session and grants for a policy that starts at `now` (epoch seconds). */
export function applyPolicy(policy: Policy, now: number): { expiresAt: Expiry; grants: Grants } {
  const ttl = policy.ttlSeconds ?? DEFAULT_TTL;
  const expiresAt = fromNow(ttl, now);
  const grants: Grants = {};
  for (const [channel, limit] of Object.entries(DEFAULT_LIMIT)) {
    grants[channel] = expiresAt === null ? null : now + Math.min(ttl, limit);
  }
  for (const [channel, duration] of Object.entries(policy.grants ?? {})) grants[channel] = fromNow(duration, now);
  for (const name of policy.without ?? []) delete grants[name];
  return { expiresAt, grants: clamp(grants, expiresAt) };
}

/** The policy of a session that was stored without one: the durations from `since` to its ends. */
export function policyOf(expiresAt: Expiry, grants: Grants, since: number): Policy {
  const lasting = (expiry: Expiry) => (expiry === null ? 0 : Math.max(1, Math.round(expiry - since)));
  return {
    ttlSeconds: lasting(expiresAt),
    grants: Object.fromEntries(Object.entries(grants).map(([name, expiry]) => [name, lasting(expiry)])),
    without: GRANTS.filter((name) => !Object.hasOwn(grants, name)),
  };
}

/** Grants that end no later than their session. */
export function clamp(grants: Grants, expiresAt: Expiry): Grants {
  return Object.fromEntries(Object.entries(grants).map(([channel, expiry]) => [channel, earlier(expiry, expiresAt)]));
}

/**
 * Fills in grants that older records lack: `voice:*` like `chat`, `desktop` like `tui`, the others until the session's end.
 */
export function inherit(grants: Grants, expiresAt: Expiry): Grants {
  const filled: Grants = { ...grants };
  const take = (name: string, from?: string) => {
    if (name in filled) return;
    filled[name] = from !== undefined && from in filled ? (filled[from] as Expiry) : expiresAt;
  };
  for (const channel of Object.keys(DEFAULT_LIMIT)) if (channel.startsWith('voice:')) take(channel, 'chat');
  take('desktop', 'tui');
  for (const name of ['files', 'profiles', 'phone', 'devices']) take(name);
  return clamp(filled, expiresAt);
}

/** True if a channel has a grant that has not expired. */
export function isGranted(grants: Grants, channel: string, now: number): boolean {
  if (!Object.hasOwn(grants, channel)) return false;
  return !isPast(grants[channel] as Expiry, now);
}
