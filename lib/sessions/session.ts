import * as v from 'valibot';
import type { RoutesRecord, SessionRecord } from '../../storage/schema.ts';
import { readAs } from '../kit/entries.ts';
import { visibleName } from '../kit/text.ts';
import { clamp, type Expiry, type Grants, inherit, type Policy, policyOf } from './grants.ts';

/** A device's description of itself. Untrusted. */
export interface Device {
  name: string;
  id: string;
  model: string;
  platform: string;
  surface: 'android' | 'desktop' | 'quest' | 'web' | 'unknown';
  formFactor: 'phone' | 'desktop' | 'xr' | 'unknown';
  /**
   * Origin of the page, if the device is a page of this relay, as seen by the relay. Its mailbox admits that page too
   * (contract 12 §3).
   */
  origin?: string;
}

export type TransportHint = 'wss' | 'ws' | 'unknown';

/** The rotating credential with which a device returns without a new pairing (contract 01 §6.5). */
export interface Refresh {
  hash: string;
  /** Replaced tokens, oldest first. Each is valid until `until`, or until a later token is presented. */
  replaced: { hash: string; until: number }[];
  createdAt: number;
  lastUsed: number;
  expiresAt: number;
}

/**
 * One paired device's living session. Its ends (`expiresAt`, `grants`) also limit its refresh credential. Only the operator
 * can extend them, so the two can never differ.
 */
export interface Session {
  /**
   * Identifies the pairing, and stays when a refresh replaces the token. Key in the store. Never shown to anybody, since
   * every refresh token of the pairing begins with it and it suffices to end the session.
   */
  readonly family: string;
  readonly tokenHash: string;
  /** First 8 characters of the token. */
  readonly prefix: string;
  /** The token itself, once this process has seen it; never stored. */
  token?: string;
  device: Device;
  transportHint: TransportHint;
  readonly createdAt: number;
  readonly firstSeen: number;
  lastSeen: number;
  expiresAt: Expiry;
  grants: Grants;
  /** Durations that the operator chose, counted from `grantedAt`, which `extend` grants again (contract 11 §2). */
  policy: Policy;
  /** Start of the policy, epoch seconds. */
  grantedAt: number;
  /** The owner's name for the device, which overrides the one that the device sends (contract 11 §2). */
  ownerName?: string;
  /** The expiry of which the device was notified by a push. */
  noticedExpiry?: number;
  /** The routes that the device knows; absent in sessions of earlier versions. */
  routes?: RoutesRecord;
  /**
   * True if its clients have answered a `system/ping`, false if they never have. Absent before the first one, and where none
   * are sent.
   */
  answersPings?: boolean;
  refresh: Refresh | null;
  /**
   * Thumbprint (RFC 7638) of the key that the session is bound to. Its credentials require a proof of the key
   * (handlers/web/README.md).
   */
  keyThumbprint?: string;
  /**
   * Set if the `terminal` grant was reduced, so that the device's shells end with it as on a revoke, and they have not ended
   * yet.
   */
  terminalReduced?: boolean;
  /** Home owns it. This relay at the edge honours it while it hears from home (contract 12 §2). */
  mirrored?: true;
  /**
   * At the edge, number of the chain of credentials that home has begun last (contract 12 §2); at home, of the
   * credentials that came by way of the edge, until the device has exchanged them.
   */
  chain?: number;
  /**
   * At the edge, set if the device has paired here and becomes one of home (contract 12 §3): the hash of its code, until
   * home has accepted it; then `adopted`, until it has connected to home.
   */
  pairedHere?: { code: string; adopted?: boolean };
  /** Set once, when the session ends: connections that hold the session check it. */
  ended?: EndReason;
}

export type EndReason = 'revoked' | 'replaced' | 'expired';

/** A name as the relay shows it: at most 64 visible characters. Empty if nothing visible is left. */
export const ownerNameOf = (text: string): string => visibleName(text).trim();

const seconds = v.pipe(v.number(), v.finite());
const duration = v.pipe(seconds, v.minValue(0));
const expiry = v.nullable(seconds);
const hash = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));
const text = v.optional(v.string(), '');
/** Anything but a thumbprint makes the record unreadable, because a session must not lose its key. */
const thumbprint = v.optional(v.pipe(v.string(), v.regex(/^[\w-]{43}$/)));

/** First version of stored records that list every grant: the session has only the listed ones. */
const ALL_GRANTS = 2;

const StoredRoutes: v.GenericSchema<unknown, RoutesRecord> = v.object({
  own: v.array(v.string()),
  others: v.boolean(),
  key: v.optional(v.string()),
});

/** Stored routes; undefined if they are missing or malformed. */
export const readRoutes = readAs(StoredRoutes);

const Stored: v.GenericSchema<unknown, SessionRecord> = v.object({
  family: v.pipe(v.string(), v.regex(/^[0-9a-f]{32}$/)),
  token_sha256: hash,
  token_prefix: v.pipe(v.string(), v.length(8)),
  device_name: text,
  device_id: text,
  device_model: text,
  device_platform: text,
  client_surface: v.fallback(v.picklist(['android', 'desktop', 'quest', 'web', 'unknown']), 'unknown'),
  device_form_factor: v.fallback(v.picklist(['phone', 'desktop', 'xr', 'unknown']), 'unknown'),
  page_origin: v.fallback(v.optional(v.pipe(v.string(), v.maxLength(300))), undefined),
  transport_hint: v.fallback(v.picklist(['wss', 'ws', 'unknown']), 'unknown'),
  created_at: seconds,
  first_seen: seconds,
  last_seen: seconds,
  expires_at: expiry,
  version: v.optional(v.number(), 1),
  grants: v.pipe(
    v.record(v.string(), expiry),
    v.check((grants) => !Array.isArray(grants)),
  ),
  refresh: v.fallback(
    v.nullable(
      v.object({
        sha256: hash,
        replaced: v.optional(v.array(v.object({ sha256: hash, until: seconds })), []),
        created_at: seconds,
        last_used: seconds,
        expires_at: seconds,
      }),
    ),
    null,
  ),
  key_thumbprint: thumbprint,
  terminal_reduced: v.optional(v.boolean()),
  policy: v.fallback(
    v.optional(
      v.object({
        ttl_seconds: v.optional(duration),
        grants: v.optional(v.record(v.string(), duration)),
        without: v.optional(v.array(v.string())),
      }),
    ),
    undefined,
  ),
  granted_at: v.fallback(v.optional(seconds), undefined),
  owner_name: v.fallback(v.optional(v.string()), undefined),
  noticed_expiry: v.fallback(v.optional(seconds), undefined),
  answers_pings: v.fallback(v.optional(v.boolean()), undefined),
  routes: v.fallback(v.optional(StoredRoutes), undefined),
  mirrored: v.optional(v.literal(true)),
  chain: v.optional(seconds),
  paired_here: v.fallback(v.optional(v.object({ code: hash, adopted: v.optional(v.boolean()) })), undefined),
});

/** The stored form of a session: hashes only. */
export function toStored(session: Session): SessionRecord {
  const { device, refresh } = session;
  return {
    family: session.family,
    token_sha256: session.tokenHash,
    token_prefix: session.prefix,
    device_name: device.name,
    device_id: device.id,
    device_model: device.model,
    device_platform: device.platform,
    client_surface: device.surface,
    device_form_factor: device.formFactor,
    ...(device.origin !== undefined && { page_origin: device.origin }),
    transport_hint: session.transportHint,
    created_at: session.createdAt,
    first_seen: session.firstSeen,
    last_seen: session.lastSeen,
    expires_at: session.expiresAt,
    version: ALL_GRANTS,
    grants: session.grants,
    refresh: refresh && {
      sha256: refresh.hash,
      replaced: refresh.replaced.map(({ hash, until }) => ({ sha256: hash, until })),
      created_at: refresh.createdAt,
      last_used: refresh.lastUsed,
      expires_at: refresh.expiresAt,
    },
    ...(session.keyThumbprint !== undefined && { key_thumbprint: session.keyThumbprint }),
    ...(session.terminalReduced && { terminal_reduced: true }),
    policy: storedPolicy(session.policy),
    granted_at: session.grantedAt,
    ...(session.ownerName !== undefined && { owner_name: session.ownerName }),
    ...(session.noticedExpiry !== undefined && { noticed_expiry: session.noticedExpiry }),
    ...(session.routes && { routes: session.routes }),
    ...(session.answersPings !== undefined && { answers_pings: session.answersPings }),
    ...(session.mirrored && { mirrored: true }),
    ...(session.chain !== undefined && { chain: session.chain }),
    ...(session.pairedHere && { paired_here: session.pairedHere }),
  };
}

const storedPolicy = ({ ttlSeconds, grants, without }: Policy): SessionRecord['policy'] => ({
  ...(ttlSeconds !== undefined && { ttl_seconds: ttlSeconds }),
  ...(grants && { grants }),
  ...(without && { without }),
});

/** The session of a stored record, or null if the record is malformed. */
export function fromStored(value: unknown): Session | null {
  const stored = readAs(Stored)(value);
  if (!stored) return null;
  const expiresAt = stored.expires_at;
  const grants =
    (stored.version ?? 1) < ALL_GRANTS ? inherit(stored.grants, expiresAt) : clamp(stored.grants, expiresAt);
  const { ttl_seconds: ttlSeconds, ...overrides } = stored.policy ?? {};
  return {
    family: stored.family,
    tokenHash: stored.token_sha256,
    prefix: stored.token_prefix,
    device: {
      // Earlier versions stored characters that are now removed from names.
      name: visibleName(stored.device_name),
      id: visibleName(stored.device_id),
      model: visibleName(stored.device_model),
      platform: visibleName(stored.device_platform),
      surface: stored.client_surface,
      formFactor: stored.device_form_factor,
      ...(stored.page_origin !== undefined && { origin: stored.page_origin }),
    },
    transportHint: stored.transport_hint,
    createdAt: stored.created_at,
    firstSeen: stored.first_seen,
    lastSeen: stored.last_seen,
    expiresAt,
    grants,
    policy: stored.policy ? { ttlSeconds, ...overrides } : policyOf(expiresAt, grants, stored.created_at),
    grantedAt: stored.granted_at ?? stored.created_at,
    ...(stored.owner_name !== undefined && { ownerName: visibleName(stored.owner_name) }),
    ...(stored.noticed_expiry !== undefined && { noticedExpiry: stored.noticed_expiry }),
    ...(stored.routes && { routes: stored.routes }),
    ...(stored.answers_pings !== undefined && { answersPings: stored.answers_pings }),
    refresh: stored.refresh && {
      hash: stored.refresh.sha256,
      replaced: stored.refresh.replaced.map(({ sha256, until }) => ({ hash: sha256, until })),
      createdAt: stored.refresh.created_at,
      lastUsed: stored.refresh.last_used,
      expiresAt: stored.refresh.expires_at,
    },
    ...(stored.key_thumbprint !== undefined && { keyThumbprint: stored.key_thumbprint }),
    ...(stored.terminal_reduced && { terminalReduced: true }),
    ...(stored.mirrored && { mirrored: true }),
    ...(stored.chain !== undefined && { chain: stored.chain }),
    ...(stored.paired_here && { pairedHere: stored.paired_here }),
  };
}
