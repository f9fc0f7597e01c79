import type { PinnedOrigin } from '../../host/dial.ts';
import { isHost, splitUrl, urlHost } from '../../kit/addresses.ts';
import { fromBase64 } from '../../kit/bytes.ts';
import { isObject, type JsonObject } from '../../kit/json.ts';
import { isDigest, isId } from '../../reach/ids.ts';

/** Maximum characters of `cert_der` (contract 08 §2.5). */
const MAX_CERTIFICATE = 8192;
const MAX_URL = 2048;
const SOCKET_PATH = '/relay/ws';
const CONNECT_PATH = '/v1/connect';

/** An endpoint, or the member that makes the candidate unusable. */
export type PinnedCandidate =
  | { endpoint: { url: string; pinned: PinnedOrigin; broker?: Broker } }
  | { problem: string };

type Broker = { url: string; hostId: string; bootstrap: { token: string; expiresAt: number } };

/**
 * Reads a `plugin_proxy` or `outbound_broker` candidate (contract 08 §6.2). A missing or malformed member makes all of
 * it unusable: a pinned route is used with all of its protections or not at all.
 */
export function readPinnedCandidate({ proxy, broker, security }: JsonObject): PinnedCandidate {
  const expected = broker === undefined ? 'pinned_tls' : 'e2ee_pinned_tls';
  if (security !== undefined && security !== expected) return { problem: 'security' };
  if (!isObject(proxy)) return { problem: 'proxy' };
  const authority = originAuthority(proxy.url);
  if (!authority) return { problem: 'proxy.url' };
  const pinned = readOrigin(proxy);
  if ('problem' in pinned) return pinned;
  const url = `wss://${authority}${SOCKET_PATH}`;
  if (broker === undefined) return { endpoint: { url, pinned } };
  const read = readBroker(broker);
  return 'problem' in read ? read : { endpoint: { url, pinned, broker: read } };
}

function readOrigin({
  transport_hint: hint,
  pin_sha256: pin,
  cert_der: certDer,
  surfaces,
}: JsonObject): PinnedOrigin | { problem: string } {
  if (hint !== undefined && hint !== 'https') return { problem: 'proxy.transport_hint' };
  if (!isPin(pin)) return { problem: 'proxy.pin_sha256' };
  if (!isCertificate(certDer)) return { problem: 'proxy.cert_der' };
  // Without a list, the origin offers the relay only.
  const hasRelay = surfaces === undefined || (Array.isArray(surfaces) && surfaces.includes('relay'));
  return hasRelay ? { pin, certDer } : { problem: 'proxy.surfaces' };
}

function readBroker(value: unknown): Broker | { problem: string } {
  if (!isObject(value)) return { problem: 'broker' };
  const { protocol_version, url, host_id: hostId, credential_kind, token, expires_at: expiresAt } = value;
  if (protocol_version !== 1) return { problem: 'broker.protocol_version' };
  const brokerUrl = readBrokerUrl(url);
  if (!brokerUrl) return { problem: 'broker.url' };
  if (!isId(hostId)) return { problem: 'broker.host_id' };
  if (credential_kind !== 'bootstrap') return { problem: 'broker.credential_kind' };
  if (!isDigest(token)) return { problem: 'broker.token' };
  if (!isEpoch(expiresAt)) return { problem: 'broker.expires_at' };
  return { url: brokerUrl, hostId, bootstrap: { token, expiresAt } };
}

/** True if the value is a time in whole seconds. */
export const isEpoch = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** `sha256/` and the canonical base64 of exactly 32 bytes. */
export const isPin = (value: unknown): value is string =>
  typeof value === 'string' && /^sha256\/[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/.test(value);

export const isCertificate = (value: unknown): value is string =>
  typeof value === 'string' &&
  value.length > 0 &&
  value.length <= MAX_CERTIFICATE &&
  /^[A-Za-z0-9+/]+={0,2}$/.test(value) &&
  fromBase64(value) !== null;

/** `host:port` of an `https:` URL with nothing else; null for any other value. */
function originAuthority(value: unknown): string | null {
  const parts = secureParts(value, 'https');
  return parts && (parts.rest === '' || parts.rest === '/') ? parts.authority : null;
}

/** The canonical form of a broker's URL: `wss://AUTHORITY/v1/connect`. Null for any other value. */
export function readBrokerUrl(value: unknown): string | null {
  const parts = secureParts(value, 'wss');
  return parts && parts.rest === CONNECT_PATH ? `wss://${parts.authority}${CONNECT_PATH}` : null;
}

function secureParts(value: unknown, scheme: string): { authority: string; rest: string } | null {
  if (typeof value !== 'string' || value.length > MAX_URL || /^[a-z]+:\/\/[^/?#]*@/i.test(value)) return null;
  const parts = splitUrl(value);
  if (parts?.scheme !== scheme || !isHost(parts.host)) return null;
  if (parts.port !== undefined && (parts.port < 1 || parts.port > 65535)) return null;
  const port = parts.port === undefined || parts.port === 443 ? '' : `:${parts.port}`;
  const authority = `${urlHost(parts.host.toLowerCase())}${port}`;
  return URL.canParse(`${scheme}://${authority}/`) ? { authority, rest: parts.rest } : null;
}
