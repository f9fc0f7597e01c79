import { expect, it } from 'vitest';
import { isPublicAddress } from '../../../lib/kit/addresses.ts';

it.each([
  [
    '1.1.1.1',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '172.15.0.1',
    '172.32.0.0',
    '223.255.255.255',
  ],
  ['2606:4700::1111', '3fff::1', '::ffff:1.1.1.1', '64:ff9b::101:101', '2a00:1450:4001:81b::200a%eth0'],
])('RFC 6890: public addresses', (...addresses) => {
  for (const address of addresses) expect([address, isPublicAddress(address)]).toEqual([address, true]);
});

it.each([
  [
    '0.0.0.0',
    '10.0.0.1',
    '100.64.0.1',
    '127.0.0.1',
    '127.255.255.254',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
  ],
  [
    '192.0.0.8',
    '192.0.2.1',
    '192.168.0.1',
    '198.18.0.1',
    '198.51.100.1',
    '203.0.113.9',
    '224.0.0.1',
    '255.255.255.255',
  ],
  [
    '::',
    '::1',
    '::ffff:10.0.0.1',
    '::ffff:7f00:1',
    '64:ff9b::a00:1',
    '100::1',
    'fe80::1',
    'fc00::1',
    'fd12::1',
    'ff02::1',
  ],
  ['2001:db8::1', '2001::1', '2002:a00:1::1', 'example.com', '', '1.1.1', '01.1.1.1', '::1%lo'],
])('RFC 6890: addresses that are not public, and no addresses', (...addresses) => {
  for (const address of addresses) expect([address, isPublicAddress(address)]).toEqual([address, false]);
});
