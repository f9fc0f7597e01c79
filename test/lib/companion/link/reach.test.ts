import { describe, expect, it } from 'vitest';
import type { Endpoint } from '../../../../lib/companion/link/endpoints.ts';
import { isUsable, readRouteCredential, routeTo } from '../../../../lib/companion/link/reach.ts';
import { newId, newToken } from '../../../../lib/reach/ids.ts';
import { parseRegister } from '../../../../lib/reach/messages.ts';
import { BROKER, PAIRING, REACH, SECURE_LINK } from './support.ts';

const NOW = 1_900_000_000;
const credential = {
  kind: 'broker_route',
  broker_url: BROKER.url,
  host_id: BROKER.host_id,
  credential_id: newId(),
  token: newToken(),
  expires_at: NOW + 100,
};
const LAN = { role: 'lan', url: 'ws://192.0.2.9:8767/ws', priority: 9 };
const ALL = [SECURE_LINK, LAN, REACH];
const read = (value: unknown, endpoint: Endpoint = REACH, endpoints: Endpoint[] = ALL) =>
  readRouteCredential(value, { endpoint, endpoints, now: NOW });

describe('the route credential of auth.ok (08 §6.4, §7.9)', () => {
  it('counts over Reach, and over Secure Link of the same origin', () => {
    const { kind: _, ...stored } = credential;
    expect(read(credential)).toEqual(stored);
    expect(read(credential, SECURE_LINK)).toEqual(stored);
  });

  it.each([
    ['over another route', credential, LAN, ALL],
    ['for a broker that the link has not named', credential, SECURE_LINK, [SECURE_LINK, LAN]],
    ['for another origin', credential, { ...SECURE_LINK, url: 'wss://192.0.2.8:9443/relay/ws' }, ALL],
    ['for another broker', { ...credential, broker_url: 'wss://evil.example/v1/connect' }, REACH, ALL],
    [
      'for another port of the broker',
      { ...credential, broker_url: 'wss://reach.example:8443/v1/connect' },
      REACH,
      ALL,
    ],
    ['for another host', { ...credential, host_id: newId() }, REACH, ALL],
    ['with another path', { ...credential, broker_url: 'wss://reach.example/v2' }, REACH, ALL],
    ['with a further key', { ...credential, extra: 1 }, REACH, ALL],
    ['without a key', { ...credential, credential_id: undefined }, REACH, ALL],
    ['of another kind', { ...credential, kind: 'bootstrap' }, REACH, ALL],
    ['with a short token', { ...credential, token: 'x' }, REACH, ALL],
    ['that has expired', { ...credential, expires_at: NOW }, REACH, ALL],
    ['with a fraction', { ...credential, expires_at: NOW + 0.5 }, REACH, ALL],
    ['that is no object', 'x', REACH, ALL],
    ['that is null', null, REACH, ALL],
  ])('does not count %s', (_name, value, endpoint, endpoints) => {
    expect(read(value, endpoint, endpoints)).toBeNull();
  });

  it('is used from then on; before, the bootstrap is, while it lasts', () => {
    const { kind: _, ...stored } = credential;
    const register = (pairing: typeof PAIRING | null, now = NOW) => {
      const first = routeTo(REACH, pairing, now)?.tunnel?.hello() ?? '';
      return parseRegister(first);
    };
    const { token } = REACH.broker.bootstrap;
    expect(register(null)).toMatchObject({ role: 'client', credential_kind: 'bootstrap', token });
    const pairing = { ...PAIRING, route_credential: stored };
    expect(register(pairing)).toMatchObject({ credential_kind: 'route', token: stored.token });
    expect(register({ ...PAIRING, route_credential: { ...stored, host_id: newId() } })).toMatchObject({ token });
    const after = BROKER.expires_at + 1;
    expect([isUsable(REACH, PAIRING, NOW), isUsable(REACH, PAIRING, after)]).toEqual([true, false]);
    expect(isUsable(REACH, { ...PAIRING, route_credential: { ...stored, expires_at: after + 1 } }, after)).toBe(true);
    expect([isUsable(LAN, null, after), isUsable(SECURE_LINK, null, after)]).toEqual([true, true]);
    expect([routeTo(LAN, PAIRING, NOW), routeTo(SECURE_LINK, PAIRING, NOW)]).toEqual([
      undefined,
      { origin: SECURE_LINK.pinned },
    ]);
  });
});
