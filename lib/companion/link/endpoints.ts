import type { PeerKey } from '../../host/dial.ts';
import { defaultPort, isHost, splitUrl, urlHost } from '../../kit/addresses.ts';
import { base64, hexToBytes } from '../../kit/bytes.ts';
import type { Pairing, StoredEndpoint } from './settings-document.ts';

/** One route to the relay's socket. */
export type Endpoint = StoredEndpoint & {
  /** The mailbox at the edge, which accepts only separate credentials (contract 12 §3). Never stored as an endpoint. */
  mailbox?: true;
};

/** The routes of a pairing, including its mailbox if there are credentials for it. */
export const routesOf = ({ endpoints, mailbox }: Pick<Pairing, 'endpoints' | 'mailbox'>): readonly Endpoint[] =>
  mailbox?.session_token === undefined
    ? endpoints
    : [...endpoints, { role: 'mailbox', url: mailbox.url, priority: Number.MAX_SAFE_INTEGER, mailbox: true }];

const MAX_URL = 2048;

/**
 * The socket URL for a relay URL, or null if it is invalid. A URL without a path gets `/ws`. Any other path stays,
 * because it belongs to the proxy that publishes the relay.
 */
export function relayUrl(value: unknown): string | null {
  if (typeof value !== 'string' || value.length > MAX_URL) return null;
  const parts = splitUrl(value.trim());
  if (!parts || !/^wss?$/.test(parts.scheme) || !isHost(parts.host) || /[?#\s]/.test(parts.rest)) return null;
  if (parts.port !== undefined && (parts.port < 1 || parts.port > 65535)) return null;
  if (/^[a-z]+:\/\/[^/]*@/i.test(value.trim())) return null;
  const path = parts.rest.replace(/\/+$/, '');
  const port = parts.port === undefined ? '' : `:${parts.port}`;
  const url = `${parts.scheme}://${urlHost(parts.host.toLowerCase())}${port}${path === '' ? '/ws' : path}`;
  return URL.canParse(url) ? url : null;
}

/** Kinds of routes for display. */
export type RouteKind = 'direct' | 'tailscale' | 'public' | 'secure_link' | 'reach' | 'mailbox';

export function routeKind({ role, pinned, broker, mailbox }: Endpoint): RouteKind {
  if (mailbox) return 'mailbox';
  if (broker) return 'reach';
  if (pinned) return 'secure_link';
  const name = role.toLowerCase();
  return name === 'tailscale' || name === 'public' ? name : 'direct';
}

const ROUTE_NAMES: Record<RouteKind, string> = {
  direct: 'direct',
  tailscale: 'Tailscale',
  public: 'public',
  secure_link: 'Secure Link',
  reach: 'Reach',
  mailbox: 'mailbox',
};

/** The route in a word or two for display; the role of other direct routes, such as `lan`. */
export function routeName(endpoint: Endpoint): string {
  const kind = routeKind(endpoint);
  return kind === 'direct' ? endpoint.role : ROUTE_NAMES[kind];
}

/**
 * Identifies an endpoint among those of one pairing. Two of them may share a URL, because Reach ends in Secure Link.
 */
export const endpointId = ({ url, broker }: Endpoint): string => (broker ? `${broker.url}#${broker.hostId}` : url);

/** The endpoint that was used last. */
export const lastEndpoint = (endpoints: readonly Endpoint[], lastGood?: string): Endpoint | undefined =>
  endpoints.find((endpoint) => endpointId(endpoint) === lastGood);

const lateness = ({ broker, mailbox }: Endpoint): number => (mailbox ? 2 : broker ? 1 : 0);

/** By priority, then Reach (contract 08 §6.2), then the mailbox (12 §7). */
export const inPreference = (endpoints: readonly Endpoint[]): Endpoint[] =>
  [...endpoints].sort((a, b) => lateness(a) - lateness(b) || a.priority - b.priority);

/** The route for a call of this device, which is the one used last, and the bearer for it (contract 03 §5, §7). */
export function callRoute(
  pairing: Pick<Pairing, 'endpoints' | 'session_token' | 'mailbox' | 'last_good'> | null,
): { endpoint: Endpoint; bearer: string } | null {
  if (!pairing) return null;
  const endpoint = lastEndpoint(routesOf(pairing), pairing.last_good) ?? inPreference(pairing.endpoints)[0];
  const token = endpoint?.mailbox ? pairing.mailbox?.session_token : pairing.session_token;
  return endpoint ? { endpoint, bearer: `Bearer ${token}` } : null;
}

/** The order of one round of attempts: the endpoint that last worked unless it is a fallback, then by preference. */
export function attemptOrder(endpoints: readonly Endpoint[], lastGood?: string): Endpoint[] {
  const isFirst = (endpoint: Endpoint) => lateness(endpoint) === 0 && endpointId(endpoint) === lastGood;
  return inPreference(endpoints).sort((a, b) => Number(isFirst(b)) - Number(isFirst(a)));
}

/**
 * The endpoints that a link should return to from `current`, best first: all that are preferred to it. A link that is
 * protected by TLS never returns to one that is not, which anybody in the local network could have set up; but a page
 * may return to the relay that served it (`web`).
 */
export function betterThan(current: Endpoint, endpoints: readonly Endpoint[]): Endpoint[] {
  const ordered = inPreference(endpoints);
  const index = ordered.findIndex((endpoint) => endpointId(endpoint) === endpointId(current));
  return ordered
    .slice(0, Math.max(0, index))
    .filter(({ url, role }) => isSecure(url) || !isSecure(current.url) || role === 'web');
}

/** The endpoints with those of `role` (ignoring case) first, or null if no endpoint has that role. */
export function preferRole(endpoints: readonly Endpoint[], role: string): Endpoint[] | null {
  const isPreferred = (endpoint: Endpoint) => endpoint.role.toLowerCase() === role.trim().toLowerCase();
  if (!endpoints.some(isPreferred)) return null;
  const sorted = [...endpoints.filter(isPreferred), ...endpoints.filter((endpoint) => !isPreferred(endpoint))];
  return sorted.map((endpoint, priority) => ({ ...endpoint, priority }));
}

/** `host:port` of an endpoint, for display and as the key of its pin. */
export function authority(url: string): string {
  const parts = splitUrl(url);
  return parts ? `${urlHost(parts.host.toLowerCase())}:${parts.port ?? defaultPort(parts.scheme)}` : url;
}

/** True if an endpoint uses TLS. */
export const isSecure = (url: string): boolean => /^wss:/i.test(url);

/** SHA-256 of a certificate's SubjectPublicKeyInfo in lower-case hex, keyed by `host:port` (spec 2.1 `tofu_pins`). */
export type Pins = Readonly<Record<string, string>>;

export type PinCheck =
  /** Nothing to pin: a plain connection, or one whose certificate the platform has verified. */
  | { kind: 'none' }
  /** First connection to this `host:port`: store the pin once the connection has proved good. */
  | { kind: 'first'; pins: Pins }
  | { kind: 'known' }
  /** A different key, or no certificate: nothing may be sent. */
  | { kind: 'refused'; reason: string };

/**
 * Trust on first use: the certificate of a home relay is self-signed, so its issuer proves nothing, but its key must
 * stay the same. Every pairing starts without pins. A pinned origin is known from the start, from its pairing link
 * alone.
 */
export function checkPin(pins: Pins, { url, pinned }: Target, spki: PeerKey): PinCheck {
  if (!isSecure(url)) return pinned ? { kind: 'refused', reason: 'a pinned route needs TLS' } : { kind: 'none' };
  const place = authority(url);
  if (spki === null && !pinned) return { kind: 'none' };
  if (!spki || !/^[0-9a-f]{64}$/.test(spki)) return { kind: 'refused', reason: `${place} shows no certificate` };
  if (pinned) {
    if (pinned.pin === `sha256/${base64(hexToBytes(spki))}`) return { kind: 'known' };
    return { kind: 'refused', reason: `${place} does not have the key of the pairing link` };
  }
  const known = Object.hasOwn(pins, place) ? pins[place] : undefined;
  if (known === undefined) return { kind: 'first', pins: { ...pins, [place]: spki } };
  if (known === spki) return { kind: 'known' };
  return {
    kind: 'refused',
    reason: `the certificate of ${place} has changed (pinned ${shorten(known)}, now ${shorten(spki)})`,
  };
}

/**
 * Returns why a call with the bearer of a pairing is refused, or null. A key without a pin belongs to another relay.
 */
export function refuseKey(pins: Pins, endpoint: Endpoint, spki: string | undefined): string | null {
  const check = checkPin(pins, endpoint, spki);
  if (check.kind === 'refused') return check.reason;
  return check.kind === 'first' ? 'the key of the relay is not pinned' : null;
}

type Target = Pick<Endpoint, 'url' | 'pinned'>;

const shorten = (hex: string): string => `${hex.slice(0, 8)}…`;
