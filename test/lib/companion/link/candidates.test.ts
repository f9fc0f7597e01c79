import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readBrokerUrl, readPinnedCandidate } from '../../../../lib/companion/link/candidates.ts';
import { inPreference, routeKind, routeName } from '../../../../lib/companion/link/endpoints.ts';
import { parsePairing } from '../../../../lib/companion/link/pairing-url.ts';
import { BROKER, PIN, PROXY } from './support.ts';

const direct = (proxy: object = {}) => ({
  role: 'plugin_proxy',
  security: 'pinned_tls',
  proxy: { ...PROXY, ...proxy },
});
const reach = (broker: object = {}) => ({
  role: 'outbound_broker',
  security: 'e2ee_pinned_tls',
  proxy: PROXY,
  broker: { ...BROKER, ...broker },
});
const without = (value: object, key: string) =>
  Object.fromEntries(Object.entries(value).filter(([name]) => name !== key));
const problem = (candidate: object) => {
  const read = readPinnedCandidate({ ...candidate });
  return 'problem' in read ? read.problem : null;
};

describe('pinned candidates of a pairing link (08 §6.2)', () => {
  it('become routes to /relay/ws of the origin', () => {
    const pinned = { pin: PIN, certDer: PROXY.cert_der };
    const url = 'wss://192.0.2.9:9443/relay/ws';
    expect(readPinnedCandidate(direct())).toEqual({ endpoint: { url, pinned } });
    const { host_id: hostId, token, expires_at: expiresAt } = BROKER;
    expect(readPinnedCandidate(reach())).toEqual({
      endpoint: { url, pinned, broker: { url: BROKER.url, hostId, bootstrap: { token, expiresAt } } },
    });
    // A missing list of surfaces means the relay alone; the default port may be written out.
    expect(problem({ ...direct(), proxy: without(PROXY, 'surfaces') })).toBeNull();
    expect(readPinnedCandidate(direct({ url: 'https://Relay.Home:443/' }))).toMatchObject({
      endpoint: { url: 'wss://relay.home/relay/ws' },
    });
    expect(readPinnedCandidate(direct({ url: 'https://[2001:db8::1]:9443' }))).toMatchObject({
      endpoint: { url: 'wss://[2001:db8::1]:9443/relay/ws' },
    });
  });

  it.each([
    ['proxy', { role: 'plugin_proxy' }],
    ['proxy', { ...direct(), proxy: null }],
    ['security', { ...direct(), security: 'none' }],
    ['security', { ...reach(), security: 'pinned_tls' }],
    ['proxy.url', direct({ url: 'http://192.0.2.9:9443' })],
    ['proxy.url', direct({ url: 'https://192.0.2.9:9443/x' })],
    ['proxy.url', direct({ url: 'https://192.0.2.9:9443?x' })],
    ['proxy.url', direct({ url: 'https://user@192.0.2.9:9443' })],
    ['proxy.url', direct({ url: 'https://192.0.2.9:0' })],
    ['proxy.url', direct({ url: 'https://192.0.2.9:65536' })],
    ['proxy.url', direct({ url: 'https://' })],
    ['proxy.url', direct({ url: 7 })],
    ['proxy.transport_hint', direct({ transport_hint: 'http' })],
    ['proxy.pin_sha256', direct({ pin_sha256: PIN.slice(7) })],
    ['proxy.pin_sha256', direct({ pin_sha256: `${PIN}=` })],
    ['proxy.pin_sha256', direct({ pin_sha256: PIN.replace('sha256', 'sha1') })],
    // The same bytes in a second spelling.
    ['proxy.pin_sha256', direct({ pin_sha256: `sha256/${'A'.repeat(42)}B=` })],
    ['proxy.pin_sha256', direct({ pin_sha256: undefined })],
    ['proxy.cert_der', direct({ cert_der: undefined })],
    ['proxy.cert_der', direct({ cert_der: '' })],
    ['proxy.cert_der', direct({ cert_der: 'A'.repeat(8196) })],
    ['proxy.cert_der', direct({ cert_der: 'MIIB\nMIIB' })],
    ['proxy.cert_der', direct({ cert_der: 'MI-_' })],
    ['proxy.surfaces', direct({ surfaces: ['api'] })],
    ['proxy.surfaces', direct({ surfaces: 'relay' })],
    ['broker', { ...reach(), broker: null }],
    ['broker.protocol_version', reach({ protocol_version: 2 })],
    ['broker.url', reach({ url: 'wss://reach.example' })],
    ['broker.url', reach({ url: 'wss://reach.example/v1/connect/' })],
    ['broker.url', reach({ url: 'wss://reach.example/v1/connect?x=1' })],
    ['broker.url', reach({ url: 'ws://reach.example/v1/connect' })],
    ['broker.host_id', reach({ host_id: `${'A'.repeat(21)}B` })],
    ['broker.host_id', reach({ host_id: 'A'.repeat(23) })],
    ['broker.credential_kind', reach({ credential_kind: 'host' })],
    ['broker.token', reach({ token: 'A'.repeat(42) })],
    ['broker.token', reach({ token: `${'A'.repeat(42)}B` })],
    ['broker.expires_at', reach({ expires_at: '2000000000' })],
    ['broker.expires_at', reach({ expires_at: 1.5 })],
    ['broker.expires_at', reach({ expires_at: undefined })],
  ])('are unusable with a bad %s (case %#)', (name, candidate) => {
    expect(problem(candidate)).toBe(name);
  });

  it('are read without exceptions, whatever they contain', () => {
    const value = fc.oneof(fc.jsonValue(), fc.constantFrom(PROXY, BROKER, PIN, BROKER.url));
    const candidate = fc.record({ role: value, proxy: value, broker: value, security: value }, { requiredKeys: [] });
    fc.assert(
      fc.property(candidate, (given) => {
        const read = readPinnedCandidate(given);
        if (!('problem' in read)) expect(read.endpoint.pinned).toBeDefined();
      }),
    );
    fc.assert(
      fc.property(fc.webUrl(), (url) => {
        const read = readBrokerUrl(url);
        expect(read === null || read === readBrokerUrl(read)).toBe(true);
      }),
    );
  });
});

describe('a pairing link with pinned candidates', () => {
  const parse = (endpoints: object[], url = 'ws://192.0.2.9:8767') =>
    parsePairing(JSON.stringify({ svc: 3, relay: { url, code: 'ABC123' }, endpoints }));
  const lan = { role: 'lan', priority: 5, relay: { url: 'ws://192.0.2.9:8767' } };

  it('puts Reach after every other route, whatever its priority says', () => {
    const { endpoints, unusable } = parse([{ ...reach(), priority: 0 }, { ...direct(), priority: 1 }, lan]);
    expect(endpoints.map(routeKind)).toEqual(['secure_link', 'direct', 'reach']);
    expect(endpoints.map(routeName)).toEqual(['Secure Link', 'lan', 'Reach']);
    expect(unusable).toEqual([]);
    expect(inPreference([...endpoints].reverse()).map(routeKind)).toEqual(['secure_link', 'direct', 'reach']);
  });

  it('leaves out what it cannot use, and names it', () => {
    const bad = { ...direct({ pin_sha256: 'none' }), priority: 0 };
    const { endpoints, unusable } = parse([bad, { role: 'outbound_broker', priority: 1 }, lan]);
    expect(endpoints.map(routeKind)).toEqual(['direct']);
    expect(unusable).toEqual([
      { role: 'plugin_proxy', problem: 'proxy.pin_sha256' },
      { role: 'outbound_broker', problem: 'proxy' },
    ]);
  });

  it('never reaches an authority that has a pin without it', () => {
    const same = { role: 'public', priority: 0, relay: { url: 'wss://192.0.2.9:9443/relay/ws' } };
    const { endpoints } = parse([same, { ...direct(), priority: 1 }], 'ws://192.0.2.9:9443');
    expect(endpoints.map(routeKind)).toEqual(['secure_link']);
  });
});
