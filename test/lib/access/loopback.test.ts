import { expect, it } from 'vitest';
import { type CallerFacts, isStrictLoopback } from '../../../lib/access/loopback.ts';
import type { Peer } from '../../../lib/access/peer.ts';

const LOCAL: Peer = { address: '127.0.0.1', tls: false, via: 'direct' };
const HOST = '127.0.0.1:8767';

const check = (
  headers: Record<string, string>,
  { peer = {}, ...facts }: Partial<Omit<CallerFacts, 'headers' | 'peer'>> & { peer?: Partial<Peer> } = {},
) =>
  isStrictLoopback({
    peer: { ...LOCAL, ...peer },
    headers: new Headers({ host: HOST, ...headers }),
    method: 'POST',
    httpVersion: '1.1',
    target: '/pairing/mint',
    ...facts,
  });

it.each([
  ['127.0.0.1', true],
  ['::1', true],
  ['::ffff:127.0.0.1', true],
  ['::FFFF:127.0.0.1', true],
  ['127.0.0.2', false],
  ['::ffff:127.0.0.2', false],
  ['127.1', false],
  ['0.0.0.0', false],
  ['::', false],
  ['192.168.1.2', false],
  ['fe80::1', false],
  [null, false],
])('contract 01 §1.3 rule 1: the socket of %s: %s', (address, expected) => {
  expect(check({}, { peer: { address } })).toBe(expected);
});

it.each([
  'Forwarded',
  'X-Forwarded-For',
  'X-Forwarded-Host',
  'X-Forwarded-Proto',
  'X-Real-IP',
  'Via',
  'CF-Connecting-IP',
  'True-Client-IP',
  'Tailscale-User-Login',
  'X-Forwarded-Port',
  'X-Forwarded-Server',
  'X-Forwarded-Anything',
  'X-Client-IP',
  'X-Cluster-Client-IP',
  'Fly-Client-IP',
  'CDN-Loop',
  'CF-Ray',
  'X-Envoy-External-Address',
  'X-Envoy-Anything',
  'X-Original-For',
  'X-Original-URL',
])('contract 01 §1.3 rules 2 and 7: %s, also an empty one, is a proxy', (name) => {
  expect(check({ [name]: '127.0.0.1' })).toBe(false);
  expect(check({ [name]: '' })).toBe(false);
});

it.each([
  ['127.0.0.1', true],
  ['127.0.0.1:1', true],
  ['localhost', true],
  ['LOCALHOST:65535', true],
  ['[::1]', true],
  ['[::1]:8767', true],
  [' localhost ', true],
  ['::1', false],
  ['127.0.0.2', false],
  ['localhost.', false],
  ['localhost.evil.example', false],
  ['127.0.0.1.evil.example', false],
  ['evil.example', false],
  ['localhost:', false],
  ['localhost:80:80', false],
  ['localhost:x', false],
  ['localhost, evil.example', false],
  ['evil@localhost', false],
  ['localhost/x', false],
  ['[::ffff:127.0.0.1]', false],
  ['0.0.0.0', false],
  ['', false],
])('contract 01 §1.3 rule 3: the Host %j: %s', (host, expected) => {
  expect(check({ host })).toBe(expected);
});

it('contract 01 §1.3 rule 3: a request without a Host header is not the operator', () => {
  const facts = { peer: LOCAL, method: 'GET', httpVersion: '1.1', target: '/' };
  expect(isStrictLoopback({ ...facts, headers: new Headers() })).toBe(false);
});

const BROWSER = { 'x-svc-operator': '1' };

it.each([
  [`http://${HOST}`, true],
  // A page on another local port is a stranger.
  ['http://127.0.0.1:9999', false],
  ['http://127.0.0.1', false],
  ['http://localhost:8767', false],
  [`https://${HOST}`, false],
  [`HTTP://${HOST}`, false],
  [`http://${HOST}/`, false],
  [`http://${HOST}, http://${HOST}`, false],
  ['null', false],
  ['', false],
  ['file://', false],
  ['https://evil.example', false],
  ['http://localhost.evil.example', false],
  [`http://${HOST}@evil.example`, false],
  [`http://evil.example/${HOST}`, false],
  ['http://127.0.0.2', false],
  ['localhost', false],
])('contract 01 §1.3 rule 4: the Origin %j: %s', (origin, expected) => {
  expect(check({ ...BROWSER, origin })).toBe(expected);
  expect(check({ ...BROWSER, origin, 'sec-fetch-site': 'same-origin' })).toBe(expected);
  expect(check({ origin })).toBe(false);
});

it.each([
  ['127.0.0.1:9', true],
  ['[::1]:9', true],
  ['[::1]', true],
  ['localhost:9', false],
  ['LOCALHOST', false],
])('contract 09 §5: a browser at %s: %s', (host, expected) => {
  expect(check({ ...BROWSER, host, origin: `http://${host}` })).toBe(expected);
  expect(check({ ...BROWSER, host, 'sec-fetch-site': 'same-origin' })).toBe(expected);
  expect(check({ ...BROWSER, host })).toBe(true);
});

it('contract 01 §1.3 rule 4: over TLS the own origin is https', () => {
  const tls = { peer: { tls: true } };
  expect(check({ ...BROWSER, origin: `https://${HOST}` }, tls)).toBe(true);
  expect(check({ ...BROWSER, origin: `http://${HOST}` }, tls)).toBe(false);
});

it.each([
  ['same-origin', 'POST', true],
  ['none', 'GET', true],
  ['none', 'HEAD', true],
  ['none', 'POST', false],
  ['none', 'DELETE', false],
  ['none', 'PATCH', false],
  ['same-site', 'GET', false],
  ['cross-site', 'GET', false],
  ['', 'GET', false],
  ['None', 'GET', false],
])('contract 01 §1.3 rule 4: Sec-Fetch-Site %j of a %s: %s', (site, method, expected) => {
  expect(check({ ...BROWSER, 'sec-fetch-site': site }, { method })).toBe(expected);
  expect(check({ 'sec-fetch-site': site }, { method })).toBe(false);
  expect(check({ 'sec-fetch-site': site, 'x-svc-operator': '0' }, { method })).toBe(false);
});

it.each([
  ['1.1', '/pairing/mint', true],
  ['2.0', '/pairing/mint', true],
  ['1.0', '/pairing/mint', false],
  ['0.9', '/pairing/mint', false],
  [undefined, '/pairing/mint', false],
  ['1.1', `http://${HOST}/pairing/mint`, false],
  ['1.1', 'pairing/mint', false],
  ['1.1', '*', false],
  ['1.1', '', false],
  ['1.1', undefined, false],
])('contract 01 §1.3 rule 7: HTTP/%s with the target %j: %s', (httpVersion, target, expected) => {
  expect(check({}, { httpVersion, target })).toBe(expected);
});

it.each([
  ['direct', true],
  ['edge', false],
  ['secure-link', false],
  ['reach', false],
] as const)('contract 01 §1.3 rule 5: through %s: %s', (via, expected) => {
  expect(check({}, { peer: { via } })).toBe(expected);
});
