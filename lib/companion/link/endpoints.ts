import { defaultPort, splitUrl, urlHost } from '../../kit/addresses.ts';

/** One address of the relay's socket. */
export interface Endpoint {
  /** `lan`, `tailscale`, `public`, …: an open set. */
  role: string;
  /** `ws:` or `wss:`. */
  url: string;
  /** Lower is tried first. */
  priority: number;
}

/** The order of one round of attempts: the endpoint that last worked, then by priority. */
export function attemptOrder(endpoints: readonly Endpoint[], lastGood?: string): Endpoint[] {
  const rank = ({ url, priority }: Endpoint) => (url === lastGood ? Number.NEGATIVE_INFINITY : priority);
  // Ranks are compared, not subtracted, because -Infinity minus itself is NaN.
  return [...endpoints].sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0));
}

/** The endpoints with those of `role` (ignoring case) first, or null if there is none of that role. */
export function preferRole(endpoints: readonly Endpoint[], role: string): Endpoint[] | null {
  const isPreferred = (endpoint: Endpoint) => endpoint.role.toLowerCase() === role.trim().toLowerCase();
  if (!endpoints.some(isPreferred)) return null;
  const sorted = [...endpoints.filter(isPreferred), ...endpoints.filter((endpoint) => !isPreferred(endpoint))];
  return sorted.map((endpoint, priority) => ({ ...endpoint, priority }));
}

/** `host:port` of an endpoint: shown to people, and the key of its pin. */
export function authority(url: string): string {
  const parts = splitUrl(url);
  return parts ? `${urlHost(parts.host.toLowerCase())}:${parts.port ?? defaultPort(parts.scheme)}` : url;
}

/** Whether an endpoint uses TLS. */
export const isSecure = (url: string): boolean => /^wss:/i.test(url);

/** SHA-256 of a certificate's SubjectPublicKeyInfo in lower-case hex, keyed by `host:port` (spec 2.1 `tofu_pins`). */
export type Pins = Readonly<Record<string, string>>;

export type PinCheck =
  /** A plain connection has nothing to pin. */
  | { kind: 'none' }
  /** First connection to this `host:port`: record the pin once the connection has proved good. */
  | { kind: 'first'; pins: Pins }
  | { kind: 'known' }
  /** A different key, or no certificate at all: nothing may be sent. */
  | { kind: 'refused'; reason: string };

/**
 * Trust on first use: the certificate of a home relay is self-signed, so what counts is not its issuer but that its key
 * stays the same. Every pairing starts with no pins.
 */
export function checkPin(pins: Pins, url: string, spki: string | undefined): PinCheck {
  if (!isSecure(url)) return { kind: 'none' };
  const place = authority(url);
  if (!spki || !/^[0-9a-f]{64}$/.test(spki)) return { kind: 'refused', reason: `${place} shows no certificate` };
  const pinned = Object.hasOwn(pins, place) ? pins[place] : undefined;
  if (pinned === undefined) return { kind: 'first', pins: { ...pins, [place]: spki } };
  if (pinned === spki) return { kind: 'known' };
  return {
    kind: 'refused',
    reason: `the certificate of ${place} has changed (pinned ${shorten(pinned)}, now ${shorten(spki)})`,
  };
}

const shorten = (hex: string): string => `${hex.slice(0, 8)}…`;
