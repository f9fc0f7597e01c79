import { rewriteCookie, rewriteLocation } from './rewrite.ts';
import type { Namespace } from './targets.ts';

/** Headers of one hop, which never pass a proxy (contract 08 §4.2). */
const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];
/** `host` and `content-length` are set again, and this hop has already answered `expect`. */
const REQUEST_DROPPED = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'expect',
  'forwarded',
  'x-real-ip',
  'x-svc-dashboard-proxy-secret',
]);
const DROPPED_PREFIXES = ['x-forwarded-', 'x-svc-operator', 'x-svc-proxy-'];
/** Parts of the opening handshake, which each hop performs itself. */
const HANDSHAKE_PREFIX = 'sec-websocket-';
const RESPONSE_DROPPED = new Set(HOP_BY_HOP);
const SESSION_HEADER = 'x-svc-relay-session';
/** The relay's ingress in the dashboard, the only path behind the proxy that may see a relay session. */
const INGRESS = '/api/plugins/svc-relay/transport/';

/** Alternating names and values, as produced by Node's parser and accepted by its writers. */
export type RawHeaders = readonly string[];

export interface RequestHeaderRules {
  namespace: Namespace;
  /** Authority of the upstream, for `Host`. */
  host: string;
  /** The advertised authority, for `X-Forwarded-Host`. Never the received `Host`. */
  authority: string;
}

/** Some servers treat `_` in a name like `-`, so a dropped name must not pass in that spelling. */
const canonicalName = (name: string): string => {
  const lower = name.toLowerCase();
  return lower.includes('_') ? lower.replaceAll('_', '-') : lower;
};

/** The headers that `Connection` lists, which are for this hop only. */
function namedByConnection(raw: RawHeaders): Set<string> | null {
  let named: Set<string> | null = null;
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string;
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue;
    for (const token of (raw[at + 1] as string).split(',')) {
      const dropped = canonicalName(token.trim());
      if (dropped === '' || dropped === 'keep-alive' || dropped === 'close') continue;
      named ??= new Set();
      named.add(dropped);
    }
  }
  return named;
}

/**
 * The headers of a request or upgrade to an upstream (contract 08 §4.2), without those that frame its body. `path` is that
 * at the upstream; `client` is the address of the TLS peer, null for a Reach stream.
 */
export function requestHeaders(
  raw: RawHeaders,
  { namespace, host, authority }: RequestHeaderRules,
  path: string,
  client: string | null,
): string[] {
  const isDashboard = namespace === 'dashboard';
  const named = namedByConnection(raw);
  const keepsSession = isDashboard && path.startsWith(INGRESS);
  const headers: string[] = ['Host', host];
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string;
    const lower = canonicalName(name);
    if (REQUEST_DROPPED.has(lower) || named?.has(lower)) continue;
    if (lower.startsWith('x-') && DROPPED_PREFIXES.some((prefix) => lower.startsWith(prefix))) continue;
    if (lower === SESSION_HEADER ? !keepsSession : lower.startsWith(HANDSHAKE_PREFIX)) continue;
    if (lower === 'cookie' ? !isDashboard : isDashboard && lower === 'accept-encoding') continue;
    headers.push(name, raw[at + 1] as string);
  }
  if (isDashboard) {
    headers.push('Accept-Encoding', 'identity', 'X-Forwarded-Prefix', '/dashboard', 'X-Forwarded-Proto', 'https');
    headers.push('X-Forwarded-Host', authority, 'X-Forwarded-For', client ?? 'unknown');
  }
  return headers;
}

/** The headers of an answer to the client (contract 08 §4.3). `host` is the upstream's authority. */
export function responseHeaders(
  raw: RawHeaders,
  { namespace, host }: Pick<RequestHeaderRules, 'namespace' | 'host'>,
): string[] {
  const isDashboard = namespace === 'dashboard';
  const named = namedByConnection(raw);
  const headers: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string;
    const value = raw[at + 1] as string;
    const lower = name.toLowerCase();
    if (RESPONSE_DROPPED.has(lower)) continue;
    // Node's parser has used the length to delimit the body, whatever `Connection` says.
    if (lower !== 'content-length' && named?.has(lower)) continue;
    if (lower === 'set-cookie') {
      if (isDashboard) headers.push(name, rewriteCookie(value));
    } else if (lower === 'set-cookie2') {
      // Obsolete, and would escape the rule for cookies.
    } else if (isDashboard && lower === 'location') {
      const location = rewriteLocation(value, host);
      if (location !== null) headers.push(name, location);
    } else headers.push(name, value);
  }
  return headers;
}

/** Headers that no longer fit a rewritten body. */
const STALE = new Set(['etag', 'content-md5', 'digest', 'content-encoding', 'transfer-encoding', 'content-length']);

/** The headers of an answer whose body is rewritten, or would be for GET; without a length. */
export function withoutStale(headers: RawHeaders): string[] {
  const remaining: string[] = [];
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at] as string;
    if (!STALE.has(name.toLowerCase())) remaining.push(name, headers[at + 1] as string);
  }
  return remaining;
}
