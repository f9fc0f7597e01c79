import type { ConnectionEnds } from '../host/users.ts';
import { plainAddress } from '../kit/addresses.ts';

/** The other end of a connection, as the runtime saw it. Never taken from a header unless stated. */
export interface Peer {
  /** Remote address of the socket; `null` where the runtime does not report it. */
  readonly address: string | null;
  readonly tls: boolean;
  /**
   * `direct`: the relay's own listener on a host; `ingress`: that listener through the dashboard, for the client at
   * `address`; `edge`: a runtime without loopback; `secure-link`: the Secure Link listener; `reach`: that listener inside
   * a stream of Reach, whose client has no address.
   */
  readonly via: 'direct' | 'ingress' | 'edge' | 'secure-link' | 'reach';
  /** The client's transport to the proxy in front, if the proxy announced it. */
  readonly transportHint?: 'wss' | 'ws' | 'unknown';
  /** Both ends of a direct connection. */
  ends?(): ConnectionEnds;
}

/** Read access to request headers, on any runtime. */
export interface HeaderReader {
  get(name: string): string | null;
  has(name: string): boolean;
  keys(): Iterable<string>;
}

/** The limit key of every stream of Reach: the relay cannot tell their clients apart (contract 08 §4.5). */
const REACH = 'reach';

const WITH_PORT = /^(?:\[([^\]]+)\]|(\d+\.\d+\.\d+\.\d+)):\d+$/;

/** True for `127.0.0.1` and `::1`, and for no other address of 127/8 (contract 01 §1.3). */
export function isLoopbackAddress(address: string | null): boolean {
  if (address === null) return false;
  const plain = plainAddress(address);
  return plain === '127.0.0.1' || plain === '::1';
}

/** The first four groups of an IPv6 address: one customer usually owns a whole /64. */
function network64(address: string): string {
  const [head = '', tail] = address.toLowerCase().split('::') as [string, string?];
  const start = head === '' ? [] : head.split(':');
  const end = tail ? tail.split(':') : [];
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - start.length - end.length);
  const groups = [...start, ...Array<string>(zeros).fill('0'), ...end];
  return `${groups
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ''))
    .join(':')}::/64`;
}

/** The key under which an address is rate-limited (contract 01 §1.4). */
export function limitKey(address: string | null): string {
  if (address === null) return 'unknown';
  const plain = plainAddress(address.trim());
  return plain.includes(':') ? network64(plain) : plain;
}

/** Maximum characters of an origin; browsers know no longer one. */
export const MAX_ORIGIN = 300;
/** Separates the address from the origin in a key. */
const FROM_ORIGIN = ' origin ';

/**
 * The limit key of a caller: its socket's address, or the last entry of `X-Forwarded-For` behind a loopback proxy that
 * the operator trusts. A page of another origin has a separate key below that of its address, so that it cannot lock
 * out tools or phones that share the address (contract 01 §1.4).
 */
export function peerKey(peer: Peer, headers: HeaderReader, trustProxyHeaders: boolean): string {
  const key = addressKey(peer, headers, trustProxyHeaders);
  const origin = headers.get('origin');
  const scheme = isSecureTransport(peer, headers, trustProxyHeaders) ? 'https' : 'http';
  if (origin === null || origin === `${scheme}://${headers.get('host')}`) return key;
  return key + FROM_ORIGIN + origin.slice(0, MAX_ORIGIN);
}

function addressKey(peer: Peer, headers: HeaderReader, trustProxyHeaders: boolean): string {
  if (peer.via === 'reach') return REACH;
  if (trustProxyHeaders && peer.via === 'direct' && isLoopbackAddress(peer.address)) {
    const last = headers.get('x-forwarded-for')?.split(',').at(-1)?.trim();
    // Some proxies append the port, which would make every connection a separate peer.
    const port = last ? WITH_PORT.exec(last) : null;
    if (last) return limitKey((port?.[1] ?? port?.[2] ?? last).slice(0, 64));
  }
  return limitKey(peer.address);
}

/** All foreign origins of an address share this multiple of one peer's limit. */
const ORIGINS_SHARE = 3;

/** A limit that an attempt counts towards: its key, and its multiple of the usual limit. */
export interface Allowance {
  key: string;
  share: number;
}

/**
 * Every limit that an attempt counts towards. A client other than a browser can send any `Origin`, so all foreign
 * origins of an address also share a limit.
 */
export function allowancesOf(key: string): Allowance[] {
  const address = addressOf(key);
  const own = { key, share: 1 };
  return address === key ? [own] : [own, { key: `${address} origins`, share: ORIGINS_SHARE }];
}

/** The limit key without its origin. Blocking the address blocks all of its origins. */
export function addressOf(key: string): string {
  const at = key.indexOf(FROM_ORIGIN);
  return at < 0 ? key : key.slice(0, at);
}

/** True if the client's own leg is encrypted: TLS here, or at a trusted proxy on loopback. */
export function isSecureTransport(peer: Peer, headers: HeaderReader, trustProxyHeaders: boolean): boolean {
  if (peer.tls) return true;
  const proxied = trustProxyHeaders && peer.via === 'direct' && isLoopbackAddress(peer.address);
  return proxied && headers.get('x-forwarded-proto')?.split(',').at(-1)?.trim().toLowerCase() === 'https';
}
