import fc from 'fast-check';
import { expect, it } from 'vitest';
import { addressOf, allowancesOf, isSecureTransport, limitKey, type Peer, peerKey } from '../../../lib/access/peer.ts';
import { plainAddress } from '../../../lib/kit/addresses.ts';

it.each([
  ['127.0.0.1', '127.0.0.1'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
  ['::FFFF:192.0.2.1', '192.0.2.1'],
  ['::ffff:c000:201', '192.0.2.1'],
  ['0000:0000:0000:0000:0000:FFFF:C000:0201', '192.0.2.1'],
  ['0:0::0:ffff:192.0.2.1', '192.0.2.1'],
  ['::ffff:192.0.2.1%eth0', '192.0.2.1'],
  ['::ffff:192.0.2', '::ffff:192.0.2'],
  ['0:ffff::1', '0:ffff::1'],
  ['fe80::1%eth0', 'fe80::1'],
  ['::1', '::1'],
])('contract 01 §1.4: %s is %s', (address, expected) => {
  expect(plainAddress(address)).toBe(expected);
});

it.each([
  [null, 'unknown'],
  ['192.0.2.1', '192.0.2.1'],
  [' 192.0.2.1 ', '192.0.2.1'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
  ['0000:0000:0000:0000:0000:FFFF:0000:0000', '0.0.0.0'],
  ['::', '0:0:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  ['1::', '1:0:0:0::/64'],
  ['2001:db8::1', '2001:db8:0:0::/64'],
  ['2001:DB8::1', '2001:db8:0:0::/64'],
  ['2001:0db8:0000:0000:0000:0000:0000:0001', '2001:db8:0:0::/64'],
  ['2001:db8:0:0:1::', '2001:db8:0:0::/64'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::', '2001:db8:1:2::/64'],
  ['::3:4:5:6:7:8', '0:0:3:4::/64'],
  ['1:2:3:4:5:6:7::', '1:2:3:4::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
])('contract 01 §1.4: %s is limited as %s', (address, expected) => {
  expect(limitKey(address)).toBe(expected);
});

const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }));
const groups = fc.array(group, { minLength: 8, maxLength: 8 });

const MAPPED = [0, 0, 0, 0, 0, 0xffff];
const isMapped = (parts: number[]) => MAPPED.every((part, at) => parts[at] === part);

/** All groups in full, in capitals. */
const full = (parts: number[]) => parts.map((part) => part.toString(16).padStart(4, '0').toUpperCase()).join(':');

/** The form that `URL` writes: lower case, the longest run of zeros as `::`. */
const shortest = (parts: number[]) => new URL(`http://[${full(parts)}]/`).hostname.slice(1, -1);

it('contract 01 §1.4: every spelling of an IPv6 address has the same key, made of its first half', () => {
  fc.assert(
    fc.property(groups, groups, (one, two) => {
      const sameNetwork = [...one.slice(0, 4), ...two.slice(4)];
      fc.pre(![one, two, sameNetwork].some(isMapped));
      expect(limitKey(full(one))).toBe(limitKey(shortest(one)));
      expect(limitKey(shortest(sameNetwork))).toBe(limitKey(shortest(one)));
      const network = (parts: number[]) => parts.slice(0, 4).join(':');
      expect(limitKey(full(one)) === limitKey(full(two))).toBe(network(one) === network(two));
    }),
  );
});

it('contract 01 §1.4: every spelling of an IPv4-mapped address has the key of the IPv4 address', () => {
  fc.assert(
    fc.property(group, group, (high, low) => {
      const parts = [...MAPPED, high, low];
      const expected = [high >> 8, high & 255, low >> 8, low & 255].join('.');
      for (const text of [full(parts), full(parts).toLowerCase(), shortest(parts), `::ffff:${expected}`]) {
        expect(limitKey(text)).toBe(expected);
      }
    }),
  );
});

it('contract 01 §1.4: any text gives a key', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      expect(typeof limitKey(text)).toBe('string');
    }),
  );
});

const LOCAL: Peer = { address: '127.0.0.1', tls: false, via: 'direct' };
const proxied = { 'x-forwarded-for': '198.51.100.7, 203.0.113.9', 'x-forwarded-proto': 'https' };

it.each([
  ['the last entry of a trusted proxy', LOCAL, proxied, true, '203.0.113.9'],
  ['IPv6 of a trusted proxy', LOCAL, { 'x-forwarded-for': '2001:db8::9' }, true, '2001:db8:0:0::/64'],
  ['without trust the socket', LOCAL, proxied, false, '127.0.0.1'],
  ['a remote socket is believed nothing', { ...LOCAL, address: '192.0.2.1' }, proxied, true, '192.0.2.1'],
  ['nor one of Secure Link', { ...LOCAL, via: 'secure-link' }, proxied, true, '127.0.0.1'],
  ['an empty header counts as absent', LOCAL, { 'x-forwarded-for': ' ' }, true, '127.0.0.1'],
  ['an empty last entry counts as absent', LOCAL, { 'x-forwarded-for': '1.2.3.4, ' }, true, '127.0.0.1'],
] as [string, Peer, Record<string, string>, boolean, string][])(
  'contract 01 §1.4: %s',
  (_name, peer, headers, trust, expected) => {
    expect(peerKey(peer, new Headers(headers), trust)).toBe(expected);
  },
);

it('contract 01 §1.4: a key taken from a header is short', () => {
  expect(peerKey(LOCAL, new Headers({ 'x-forwarded-for': 'x'.repeat(10_000) }), true).length).toBeLessThan(100);
});

it.each([
  ['TLS', { ...LOCAL, tls: true }, {}, false, true],
  ['plain', LOCAL, {}, true, false],
  ['https at a trusted proxy', LOCAL, proxied, true, true],
  ['https at a proxy that is not trusted', LOCAL, proxied, false, false],
  ['http at a trusted proxy', LOCAL, { 'x-forwarded-proto': 'https, http' }, true, false],
  ['a header of a remote socket', { ...LOCAL, address: '192.0.2.1' }, proxied, true, false],
] as [string, Peer, Record<string, string>, boolean, boolean][])(
  'contract 01 §6.1: %s',
  (_name, peer, headers, trust, expected) => {
    expect(isSecureTransport(peer, new Headers(headers), trust)).toBe(expected);
  },
);

const LAN: Peer = { address: '192.0.2.1', tls: false, via: 'direct' };
const HOST = { host: 'relay.example:8767' };

it.each<[string, Peer, Record<string, string>, boolean, string]>([
  ['none', LAN, {}, false, '192.0.2.1'],
  ['the own one', LAN, { origin: 'http://relay.example:8767' }, false, '192.0.2.1'],
  ['the own one over TLS', { ...LAN, tls: true }, { origin: 'https://relay.example:8767' }, false, '192.0.2.1'],
  [
    'the own one behind a trusted proxy',
    LOCAL,
    { ...proxied, origin: 'https://relay.example:8767' },
    true,
    '203.0.113.9',
  ],
  [
    'another scheme',
    LAN,
    { origin: 'https://relay.example:8767' },
    false,
    '192.0.2.1 origin https://relay.example:8767',
  ],
  ['another port', LAN, { origin: 'http://relay.example' }, false, '192.0.2.1 origin http://relay.example'],
  ['another host', LAN, { origin: 'https://evil.example' }, false, '192.0.2.1 origin https://evil.example'],
  ['an opaque one', LAN, { origin: 'null' }, false, '192.0.2.1 origin null'],
  ['an empty one', LAN, { origin: '' }, false, '192.0.2.1 origin '],
])('contract 01 §1.4: the key of a caller with %s as Origin', (_name, peer, headers, trust, expected) => {
  const key = peerKey(peer, new Headers({ ...HOST, ...headers }), trust);
  expect(key).toBe(expected);
  expect(addressOf(key)).toBe(expected.split(' ')[0]);
});

it('contract 01 §1.4: an origin counts by itself, and with all others of its address', () => {
  expect(allowancesOf('192.0.2.1')).toEqual([{ key: '192.0.2.1', share: 1 }]);
  const page = '192.0.2.1 origin https://evil.example';
  expect(allowancesOf(page)).toEqual([
    { key: page, share: 1 },
    { key: '192.0.2.1 origins', share: 3 },
  ]);
  // No Origin can name what others share.
  for (const origin of ['s', '', ' s', 'origins']) {
    const key = peerKey(LAN, new Headers({ ...HOST, origin }), false);
    expect(new Set(allowancesOf(key).map((one) => one.key)).size).toBe(2);
    expect(addressOf(key)).toBe('192.0.2.1');
  }
  const long = peerKey(LAN, new Headers({ ...HOST, origin: 'x'.repeat(10_000) }), false);
  expect(long.length).toBeLessThan(400);
});
