import { isTime } from '../../kit/clock.ts';
import { isObject } from '../../kit/json.ts';
import type { Payload } from '../../socket/envelope.ts';
import { relayUrl } from './endpoints.ts';
import type { MailboxAccess } from './settings-document.ts';

/** This device's description in its first frame (contract 01 §3.3). */
export interface DeviceFacts {
  name: string;
  hostname?: string;
  model?: string;
  platform?: string;
  /** Default `android`. */
  surface?: string;
  /** Default `phone`. */
  formFactor?: string;
  /** True if it supports the typed events of chat (contract 02 §5.5). Default false. */
  typedStream?: boolean;
}

export type Credentials =
  | { pairingCode: string; pairingSecret?: string }
  | { sessionToken: string; refreshToken?: string };

/** Payload of `system/auth`. */
export function authPayload(credentials: Credentials, deviceId: string, device: DeviceFacts): Payload {
  return {
    ...('pairingCode' in credentials
      ? { pairing_code: credentials.pairingCode, pairing_secret: credentials.pairingSecret }
      : { session_token: credentials.sessionToken, refresh_token: credentials.refreshToken }),
    device_id: deviceId,
    device_name: device.name,
    device_hostname: device.hostname,
    device_model: device.model,
    device_platform: device.platform,
    client_surface: device.surface ?? 'android',
    device_form_factor: device.formFactor ?? 'phone',
    supports: { typed_stream_events: device.typedStream ?? false, event_schema_version: 1 },
  };
}

/** The parts of `auth.ok` that are not secret. */
export interface RelayInfo {
  serverVersion: string;
  /** Epoch seconds; null = never. */
  expiresAt: number | null;
  grants: Record<string, number | null>;
  /** As received (contract 07 §1.2). */
  profiles?: unknown;
}

/** A usable `auth.ok`. */
export interface IssuedSession extends RelayInfo {
  sessionToken: string;
  /** Only if newly issued. */
  refreshToken?: string;
  /** As received; `readRouteCredential` decides whether it is valid on the route. */
  routeCredential?: unknown;
  /** Credentials for the mailbox at the edge, once issued. */
  mailbox?: MailboxAccess;
  /** Home's key for sealed messages, as received; valid only with a valid signature. */
  homeBox?: unknown;
  /** True if the session is bound to the key that was proved. */
  bound?: boolean;
}

/** True if a token can be stored and sent: printable ASCII on one line (contract 01 §3.5). */
const isToken = (value: unknown): value is string => typeof value === 'string' && /^[\x21-\x7e]{1,512}$/.test(value);

const isExpiry = (value: unknown): value is number | null => value === null || isTime(value, 1000);

/** Reads `mailbox` of a message; undefined unless it is usable. */
export function readMailbox(value: unknown): MailboxAccess | undefined {
  if (!isObject(value)) return undefined;
  const { session_token, refresh_token } = value;
  const url = relayUrl(value.url);
  if (!url || !isToken(session_token) || !isToken(refresh_token)) return undefined;
  return { url, session_token, refresh_token, given: session_token.slice(0, 16) };
}

/**
 * The device's mailbox after home has sent `given`. Home repeats its credentials until it sees that they arrived, so
 * credentials that the edge has issued in their place stay: the edge would take the first ones for stolen.
 */
export const newerMailbox = (known: MailboxAccess | undefined, given: MailboxAccess): MailboxAccess =>
  known?.session_token !== undefined && known.given === given.given && known.url === given.url ? known : given;

/**
 * Reads `home` of a message: the addresses and credentials of home for a device that has paired at the edge. Secret.
 * Undefined unless it is usable.
 */
export function readHome(value: unknown) {
  if (!isObject(value)) return undefined;
  const { session_token, refresh_token, urls } = value;
  if (!isToken(session_token) || !isToken(refresh_token)) return undefined;
  const usable = (Array.isArray(urls) ? urls : []).flatMap((url) => relayUrl(url) ?? []);
  return { urls: usable, session_token, refresh_token };
}

/** Reads `auth.ok`; null if it lacks a usable session. */
export function readIssuedSession(payload: Payload): IssuedSession | null {
  const { session_token: sessionToken, refresh_token: refreshToken, expires_at: expiresAt, grants } = payload;
  if (!isToken(sessionToken)) return null;
  if (refreshToken !== undefined && refreshToken !== null && !isToken(refreshToken)) return null;
  const known = isObject(grants) ? Object.entries(grants).filter(([, value]) => isExpiry(value)) : [];
  return {
    sessionToken,
    refreshToken: refreshToken ?? undefined,
    routeCredential: payload.route_credential,
    homeBox: payload.home_box,
    bound: payload.bound === true,
    mailbox: readMailbox(payload.mailbox),
    serverVersion: typeof payload.server_version === 'string' ? payload.server_version.slice(0, 64) : 'unknown',
    expiresAt: isExpiry(expiresAt) ? expiresAt : null,
    grants: Object.fromEntries(known) as RelayInfo['grants'],
    profiles: payload.profiles,
  };
}
