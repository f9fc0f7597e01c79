import { type HeaderReader, isLoopbackAddress, type Peer } from './peer.ts';

/** Each of these shows that a proxy stands between the caller and this relay. */
const PROXY_HEADERS = [
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'via',
  'cf-connecting-ip',
  'true-client-ip',
  'tailscale-user-login',
];

const LOOPBACK_HOSTS = new Set(['127.0.0.1', 'localhost', '[::1]']);
const HOST = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::\d{1,5})?$/i;

const namesLoopback = (host: string | null): boolean => {
  const match = host === null ? null : HOST.exec(host.trim());
  return match !== null && LOOPBACK_HOSTS.has((match[1] as string).toLowerCase());
};

function isLoopbackOrigin(origin: string): boolean {
  if (!URL.canParse(origin)) return false;
  return LOOPBACK_HOSTS.has(new URL(origin).hostname);
}

/**
 * Whether a request comes from a process on this host, by the one rule for every area (contract 01 §1.3). The socket's
 * address alone proves nothing: TLS front-ends and tunnels forward to 127.0.0.1, and web pages reach it through DNS
 * rebinding.
 */
export function isStrictLoopback(peer: Peer, headers: HeaderReader): boolean {
  if (peer.via !== 'direct' || !isLoopbackAddress(peer.address)) return false;
  if (PROXY_HEADERS.some((name) => headers.has(name))) return false;
  if (!namesLoopback(headers.get('host'))) return false;
  const origin = headers.get('origin');
  if (origin !== null && !isLoopbackOrigin(origin)) return false;
  const site = headers.get('sec-fetch-site');
  return site === null || site === 'same-origin' || site === 'none';
}
