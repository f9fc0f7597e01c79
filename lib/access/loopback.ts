import { type HeaderReader, isLoopbackAddress, type Peer } from './peer.ts';

/** The parts of a request from which its caller is judged. */
export interface CallerFacts {
  readonly peer: Peer;
  readonly headers: HeaderReader;
  readonly method: string;
  /** `1.1` of `GET / HTTP/1.1`; absent where the runtime does not report it. */
  readonly httpVersion?: string;
  /** The target of the request line, as sent. */
  readonly target?: string;
  /** True if it is the handshake of a WebSocket, and not a plain request with its headers. */
  readonly isHandshake?: boolean;
}

/** Each of these shows that a proxy stands between the caller and this relay (rules 2 and 7). */
const PROXY_HEADERS = new Set([
  'forwarded',
  'x-real-ip',
  'via',
  'cf-connecting-ip',
  'true-client-ip',
  'tailscale-user-login',
  'x-client-ip',
  'x-cluster-client-ip',
  'fly-client-ip',
  'cdn-loop',
  'cf-ray',
]);
const PROXY_PREFIXES = ['x-forwarded-', 'x-envoy-', 'x-original-'];

const LOOPBACK_HOSTS = new Set(['127.0.0.1', 'localhost', '[::1]']);
const HOST = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::\d{1,5})?$/i;

/**
 * True if a request comes from this host and through nothing else: rules 1 to 5 and 7 for every area (contract 01
 * §1.3). The socket's address alone proves nothing: TLS front-ends and tunnels forward to 127.0.0.1, and web pages
 * reach it from any browser here.
 */
export function isStrictLoopback(caller: CallerFacts): boolean {
  const { peer, headers, method } = caller;
  const own = `${peer.tls ? 'https' : 'http'}://${headers.get('host')}`;
  return isLocalCaller(caller) && isSameOrigin(headers, own, method);
}

/** Like `isStrictLoopback` without rule 4, which is about calls by a page: for files that a browser shows. */
export function isLocalCaller({ peer, headers, httpVersion, target }: Omit<CallerFacts, 'method'>): boolean {
  if (peer.via !== 'direct' || !isLoopbackAddress(peer.address)) return false;
  if (!(Number(httpVersion) >= 1.1) || !target?.startsWith('/')) return false;
  for (const name of headers.keys()) if (isProxyHeader(name.toLowerCase())) return false;
  return LOOPBACK_HOSTS.has(hostName(headers.get('host')));
}

const isProxyHeader = (name: string): boolean =>
  PROXY_HEADERS.has(name) || PROXY_PREFIXES.some((prefix) => name.startsWith(prefix));

/** The name in a `Host` header, in lower case; empty for a malformed one. */
const hostName = (host: string | null): string => HOST.exec(host?.trim() ?? '')?.[1]?.toLowerCase() ?? '';

/**
 * True if `Host` is one of the addresses of this host, and not `localhost`, under which the phone app has an origin of
 * its own, apart from the operator's (contract 09 §5).
 */
export const namesLoopbackAddress = (host: string | null): boolean => /^(?:127\.0\.0\.1|\[::1\])$/.test(hostName(host));

/** Rule 4. Not every browser sends `Sec-Fetch-Site`, so a page on another local port is recognised by its `Origin`. */
function isSameOrigin(headers: HeaderReader, own: string, method: string): boolean {
  const origin = headers.get('origin');
  const site = headers.get('sec-fetch-site');
  if (origin === null && site === null) return true;
  if (!namesLoopbackAddress(headers.get('host'))) return false;
  if (origin !== null && origin !== own) return false;
  const isOwnSite = site === null || site === 'same-origin';
  if (!isOwnSite && !(site === 'none' && (method === 'GET' || method === 'HEAD'))) return false;
  // No foreign page can add this header without a preflight, which is never granted.
  return headers.get('x-svc-operator') === '1';
}
