import { isIP } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseHost, parsePort, readSettings, readUpstream } from '../../../lib/secure-link/settings.ts';
import { runs } from '../../support/runs.ts';
import { configOf } from '../pairing/fixtures.ts';

describe('parseHost (contract 08 §5)', () => {
  it.each([
    ['10.0.0.1', '10.0.0.1'],
    [' Relay.Example ', 'relay.example'],
    ['[2001:DB8:0:0::1]', '2001:db8::1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['127.0.0.1', '127.0.0.1'],
    ['localhost', 'localhost'],
    ['a-b.c1', 'a-b.c1'],
    [`${'a'.repeat(63)}.b`, `${'a'.repeat(63)}.b`],
  ])('reads %j', (text, host) => {
    expect(parseHost(text)).toBe(host);
  });

  it.each([
    '',
    ' ',
    '127.1',
    '1',
    '0x7f.1',
    '256.1.1.1',
    '01.2.3.4',
    'https://relay.example',
    'a..example',
    '.example',
    'relay.example.',
    'a;id',
    'user@host',
    'relay.example:80',
    'fe80::1%eth0',
    'relay.example]',
    '[relay.example]',
    '[10.0.0.1',
    '-a.example',
    'a_b.example',
    'bücher.example',
    '0.0.0.0',
    '::',
    '224.0.0.1',
    '239.255.255.255',
    'ff02::1',
    `${'a'.repeat(64)}.b`,
    'a.'.repeat(127),
    'a\u0000b',
    'a\nb',
  ])('refuses %j', (text) => {
    expect(parseHost(text)).toBeNull();
  });

  it('returns what it accepts unchanged, and never more than a host', () => {
    const soup = fc.string({ unit: fc.constantFrom(...'aZ09.-:[]%/@ _x\\?#ü') });
    fc.assert(
      fc.property(fc.oneof(soup, fc.string(), fc.ipV4(), fc.ipV6(), fc.domain()), (text) => {
        const host = parseHost(text);
        if (host === null) return;
        expect(parseHost(host)).toBe(host);
        const url = new URL(`https://${isIP(host) === 6 ? `[${host}]` : host}:9443/`);
        expect([url.hostname.replace(/^\[|\]$/g, ''), url.port, url.username, url.pathname]).toEqual([
          host,
          '9443',
          '',
          '/',
        ]);
      }),
      { numRuns: runs(2000) },
    );
  });

  it('accepts every address of a single host', () => {
    const isHostAddress = (address: string) =>
      !/^(?:0\.0\.0\.0$|22[4-9]\.|23\d\.)/.test(address) && !/^(?:ff..:|[0:]+$)/i.test(address);
    fc.assert(
      fc.property(fc.ipV4().filter(isHostAddress), (address) => {
        expect(parseHost(address)).toBe(address);
      }),
    );
  });
});

it('parsePort takes decimal digits from 1 to 65535', () => {
  expect(['1', '9443', '65535'].map(parsePort)).toEqual([1, 9443, 65535]);
  for (const text of ['', '0', '65536', '-1', '+1', '1.0', '1e3', '0x1f', ' 1', '１', '99999999999']) {
    expect(parsePort(text)).toBeNull();
  }
});

describe('readUpstream (contract 08 §1)', () => {
  it.each([
    ['http://127.0.0.1:9119', 'http://127.0.0.1:9119/'],
    ['http://localhost:8642/', 'http://localhost:8642/'],
    ['http://[::1]:1/base/', 'http://[::1]:1/base'],
  ])('reads %j', (text, href) => {
    expect(readUpstream(text)?.href).toBe(href);
  });

  it.each([
    'https://127.0.0.1',
    'http://127.0.0.2',
    'http://10.0.0.1',
    'http://relay.example',
    'http://localhost.example',
    'http://x.localhost',
    'http://user@localhost',
    'http://localhost/?',
    'http://localhost/#',
    'http://localhost/?a=b',
    'localhost:8642',
    '',
  ])('refuses %j', (text) => {
    expect(readUpstream(text)).toBeNull();
  });
});

describe('readSettings (contract 08 §1)', () => {
  it('has the defaults of the contract, and takes the older names as a fallback only', () => {
    expect(readSettings(configOf())).toMatchObject({ bindHost: '0.0.0.0', port: 9443 });
    const older = {
      RELAY_SECURE_PROXY_ENABLED: '1',
      RELAY_SECURE_PROXY_HOST: '10.0.0.1',
      RELAY_SECURE_PROXY_PORT: '1000',
      RELAY_SECURE_PROXY_CERT: '~/c.pem',
      RELAY_SECURE_PROXY_KEY: '~/k.pem',
      RELAY_SECURE_PROXY_DASHBOARD_URL: 'http://localhost:1',
    };
    expect(configOf(older).secureLinkEnabled).toBe(true);
    expect(readSettings(configOf(older))).toMatchObject({
      bindHost: '10.0.0.1',
      port: 1000,
      files: { cert: '/nowhere/c.pem', key: '/nowhere/k.pem' },
    });
    const both = configOf({ ...older, RELAY_SECURE_LINK_ENABLED: '0', RELAY_SECURE_LINK_PORT: '2000' });
    expect(both.secureLinkEnabled).toBe(false);
    expect(readSettings(both)).toMatchObject({ bindHost: '10.0.0.1', port: 2000 });
  });

  it.each([
    ['RELAY_SECURE_LINK_HOST', 'a..b'],
    ['RELAY_SECURE_LINK_PORT', '70000'],
    ['RELAY_SECURE_LINK_CERT', '/c.pem'],
    ['RELAY_SECURE_LINK_KEY', '/k.pem'],
    ['RELAY_SECURE_LINK_DASHBOARD_URL', 'http://10.0.0.1:9119'],
    ['RELAY_WEBAPI_URL', 'https://api.example'],
  ])('names a wrong %s without throwing', (name, value) => {
    expect(readSettings(configOf({ [name]: value }))).toContain(name);
  });
});
