import { describe, expect, it } from 'vitest';
import type { Endpoint } from '../../../../lib/companion/link/endpoints.ts';
import { withRoutes } from '../../../../lib/companion/link/new-routes.ts';
import type { Pairing } from '../../../../lib/companion/link/settings.ts';

const pairingWith = (endpoints: Endpoint[], tofu_pins: Record<string, string> = {}): Pairing => ({
  session_token: 't',
  endpoints,
  tofu_pins,
  paired_at: 0,
  server_version: '1',
  expires_at: null,
  grants: {},
});
const lan = (host: string, priority = 0, scheme = 'ws'): Endpoint => ({
  role: 'lan',
  url: `${scheme}://${host}:8767/ws`,
  priority,
});
const given = ({ role, url, priority }: Endpoint) => ({ role, priority, relay: { url } });
const pinned = { pin: `sha256/${'A'.repeat(43)}=`, certDer: 'AAAA' };
const link: Endpoint = { role: 'plugin_proxy', url: 'wss://192.0.2.7:9443/relay/ws', priority: 1, pinned };
const reach: Endpoint = {
  ...link,
  role: 'outbound_broker',
  priority: 2,
  broker: { url: 'wss://b.example/v1/connect', hostId: 'h', bootstrap: { token: 't', expiresAt: 1 } },
};

describe('routes.updated (contract 11 §2)', () => {
  it('replaces routes of the same role at their rank, and keeps the others with their credentials', () => {
    const tailnet: Endpoint = { role: 'tailscale', url: 'wss://a.ts.net:8767/ws', priority: 0 };
    const pairing = pairingWith([tailnet, lan('192.0.2.7', 1), link, reach]);
    const change = withRoutes(pairing, [given(lan('192.0.2.8'))], tailnet);
    expect(change?.endpoints.map(({ role, url, priority }) => [role, url, priority])).toEqual([
      ['tailscale', tailnet.url, 0],
      ['lan', 'ws://192.0.2.8:8767/ws', 1],
      ['plugin_proxy', link.url, 2],
      ['outbound_broker', reach.url, 3],
    ]);
    expect(change?.endpoints[3]?.broker).toEqual(reach.broker);
    const again = withRoutes({ ...pairing, ...change }, [given(lan('192.0.2.8'))], tailnet);
    expect(again).toBeNull();
  });

  it('takes the pin of the old address along, so that nobody may put another key at the new one', () => {
    const old = lan('192.0.2.7', 0, 'wss');
    const change = withRoutes(pairingWith([old], { '192.0.2.7:8767': 'aa' }), [given(lan('192.0.2.8', 0, 'wss'))], old);
    expect(change?.tofu_pins).toEqual({ '192.0.2.7:8767': 'aa', '192.0.2.8:8767': 'aa' });
  });

  it('lets a pinned route move, never to another key; the first one has to come over TLS', () => {
    const proxy = {
      url: 'https://192.0.2.9:9443',
      transport_hint: 'https',
      pin_sha256: pinned.pin,
      cert_der: pinned.certDer,
    };
    const offered = [{ role: 'plugin_proxy', priority: 0, proxy }, given(lan('192.0.2.8'))];
    const linkAfter = (known: Endpoint[], via: Endpoint) =>
      withRoutes(pairingWith(known), offered, via)?.endpoints.find(({ role }) => role === 'plugin_proxy');
    const moved = { url: 'wss://192.0.2.9:9443/relay/ws', pinned };
    expect(linkAfter([lan('192.0.2.7'), link], lan('192.0.2.7'))).toMatchObject(moved);
    const otherKey = { ...link, priority: 1, pinned: { ...pinned, pin: `sha256/${'B'.repeat(42)}A=` } };
    for (const via of [lan('192.0.2.7'), otherKey]) {
      expect(linkAfter([lan('192.0.2.7'), otherKey], via)).toEqual(otherKey);
    }
    expect(linkAfter([lan('192.0.2.7')], lan('192.0.2.7'))).toBeUndefined();
    expect(linkAfter([lan('192.0.2.7')], lan('192.0.2.7', 0, 'wss'))).toMatchObject(moved);
  });

  it('refuses what is no list of routes, and changes nothing for an empty one', () => {
    const pairing = pairingWith([lan('192.0.2.7')]);
    for (const value of [null, undefined, []]) expect(withRoutes(pairing, value, lan('192.0.2.7'))).toBeNull();
    for (const value of ['x', [1], {}, Array(17).fill({})]) {
      expect(() => withRoutes(pairing, value, lan('192.0.2.7')), JSON.stringify(value)).toThrow(/endpoints/);
    }
  });
});
