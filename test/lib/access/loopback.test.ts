import { expect, it } from 'vitest';
import { isStrictLoopback } from '../../../lib/access/loopback.ts';
import type { Peer } from '../../../lib/access/peer.ts';

const LOCAL: Peer = { address: '127.0.0.1', tls: false, via: 'direct' };
const check = (headers: Record<string, string>, peer: Partial<Peer> = {}) =>
  isStrictLoopback({ ...LOCAL, ...peer }, new Headers({ host: '127.0.0.1:8767', ...headers }));

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
  expect(check({}, { address })).toBe(expected);
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
])('contract 01 §1.3 rule 2: %s, also an empty one, is a proxy', (name) => {
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
  expect(isStrictLoopback(LOCAL, new Headers())).toBe(false);
});

it.each([
  ['http://127.0.0.1', true],
  ['https://127.0.0.1:9', true],
  ['http://localhost:3000', true],
  ['http://[::1]:8', true],
  ['null', false],
  ['', false],
  ['file://', false],
  ['https://evil.example', false],
  ['http://localhost.evil.example', false],
  ['http://localhost@evil.example', false],
  ['http://evil.example/localhost', false],
  ['http://127.0.0.2', false],
  ['localhost', false],
])('contract 01 §1.3 rule 4: the Origin %j: %s', (origin, expected) => {
  expect(check({ origin })).toBe(expected);
});

it.each([
  ['none', true],
  ['same-origin', true],
  ['same-site', false],
  ['cross-site', false],
  ['', false],
  ['None', false],
])('contract 01 §1.3 rule 4: Sec-Fetch-Site %j: %s', (site, expected) => {
  expect(check({ 'sec-fetch-site': site })).toBe(expected);
});

it.each([
  ['direct', true],
  ['edge', false],
  ['secure-link', false],
  ['reach', false],
] as const)('contract 01 §1.3 rule 5: through %s: %s', (via, expected) => {
  expect(check({}, { via })).toBe(expected);
});
