import { createHash, createHmac } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Peer } from '../../../lib/access/peer.ts';
import { createIngressMarker, markerHeaders, markerSecret } from '../../../lib/dashboard/marker.ts';

const LABEL = 'svc-relay/dashboard-ingress/v1';
const KEY = new Uint8Array(32).fill(7);
const signing = { configured: undefined, signingSecret: async () => KEY };
const LOCAL: Peer = { address: '127.0.0.1', tls: false, via: 'direct' };

/** Header names and values in turn, as an object. */
const asObject = (list: string[]) =>
  Object.fromEntries(list.flatMap((name, index) => (index % 2 === 0 ? [[name, list[index + 1] as string]] : [])));

async function marked(changes: Record<string, string | undefined> = {}): Promise<Headers> {
  const secret = (await markerSecret(signing)) as string;
  const headers = { ...asObject(markerHeaders(secret, '192.0.2.7', true)), ...changes };
  return new Headers(Object.entries(headers).filter((pair): pair is [string, string] => pair[1] !== undefined));
}

describe('the marker secret (contract 07 §4.3)', () => {
  it('is an HMAC of the signing secret', async () => {
    expect(await markerSecret(signing)).toBe(createHmac('sha256', KEY).update(LABEL).digest('hex'));
  });

  it('is a digest of the configured secret where there is one', async () => {
    const expected = createHash('sha256').update(`${LABEL}hush`).digest('hex');
    expect(await markerSecret({ ...signing, configured: 'hush' })).toBe(expected);
  });

  it('is absent without a signing secret', async () => {
    expect(await markerSecret({ configured: undefined, signingSecret: async () => null })).toBeNull();
  });
});

describe('the marker at the relay (contract 07 §4.3)', () => {
  it('puts the client in the place of the loopback peer', async () => {
    const peer = await createIngressMarker(signing).peerOf(LOCAL, await marked());
    expect(peer).toEqual({ address: '192.0.2.7', tls: true, via: 'ingress', transportHint: 'wss' });
  });

  it.each([
    ['2001:DB8:0:0:0:0:0:1', '2001:db8::1'],
    ['::ffff:203.0.113.9', '203.0.113.9'],
    ['0:0:0:0:0:ffff:203.0.113.9', '203.0.113.9'],
    ['fe80::1%eth0', 'fe80::1'],
    ['127.0.0.1', '127.0.0.1'],
    ['', '127.0.0.1'],
    ['localhost', '127.0.0.1'],
    ['203.0.113.999', '127.0.0.1'],
    ['203.0.113', '127.0.0.1'],
    ['1.2.3.4.', '127.0.0.1'],
    ['1.2.3.4, 5.6.7.8', '127.0.0.1'],
    ['[::1]', '127.0.0.1'],
    [':', '127.0.0.1'],
    ['1'.repeat(5000), '127.0.0.1'],
  ])('takes the address %s as %s, and is never loopback', async (address, expected) => {
    const peer = await createIngressMarker(signing).peerOf(LOCAL, await marked({ 'x-svc-proxy-peer': address }));
    expect(peer).toMatchObject({ address: expected, via: 'ingress' });
  });

  it.each([
    ['ws', 'ws', false],
    ['wss', 'wss', true],
    ['https', 'unknown', false],
    ['WSS', 'unknown', false],
    [undefined, 'unknown', false],
  ])('takes the transport %s as %s', async (proto, transportHint, tls) => {
    const peer = await createIngressMarker(signing).peerOf(LOCAL, await marked({ 'x-svc-proxy-proto': proto }));
    expect(peer).toMatchObject({ transportHint, tls });
  });

  it('ignores a wrong secret', async () => {
    const marker = createIngressMarker(signing);
    const right = (await markerSecret(signing)) as string;
    for (const secret of ['', 'x', right.slice(1), `${right}0`, right.toUpperCase(), `${right}, ${right}`]) {
      expect(await marker.peerOf(LOCAL, await marked({ 'x-svc-dashboard-proxy-secret': secret }))).toBe(LOCAL);
    }
  });

  it('ignores the right secret from any peer that is not loopback', async () => {
    const headers = await marked();
    for (const other of [
      { ...LOCAL, address: '192.0.2.1' },
      { ...LOCAL, address: '127.0.0.2' },
      { ...LOCAL, address: null },
      { ...LOCAL, via: 'edge' },
      { ...LOCAL, via: 'secure-link' },
      { ...LOCAL, via: 'reach' },
    ] as Peer[]) {
      expect(await createIngressMarker(signing).peerOf(other, headers)).toBe(other);
    }
  });

  it('trusts nothing without a secret of its own, and asks for it again', async () => {
    let secret: Uint8Array | null = null;
    const marker = createIngressMarker({ configured: undefined, signingSecret: async () => secret });
    // Neither the address that the headers name nor a caller on this host.
    expect(await marker.peerOf(LOCAL, await marked())).toMatchObject({ via: 'ingress', address: LOCAL.address });
    secret = KEY;
    expect(await marker.peerOf(LOCAL, await marked())).toMatchObject({ via: 'ingress' });
  });

  it('needs no promise for a request without the header', () => {
    expect(createIngressMarker(signing).peerOf(LOCAL, new Headers())).toBe(LOCAL);
  });
});
