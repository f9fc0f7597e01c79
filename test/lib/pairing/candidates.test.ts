import { describe, expect, test } from 'vitest';
import type { HostNetwork, Tailnet } from '../../../lib/host/index.ts';
import { type Candidate, correctTailscale, readCandidates } from '../../../lib/pairing/candidates.ts';

const invalid = expect.objectContaining({ kind: 'invalid', message: expect.stringContaining('endpoints') });

describe('endpoints of a request (contract 01 §5.3, §5.4)', () => {
  test.each<[string, unknown]>([
    ['absent', undefined],
    ['null', null],
  ])('%s counts as absent', (_, value) => {
    expect(readCandidates(value)).toBeUndefined();
  });

  test('are kept verbatim', () => {
    const sixteen = Array.from({ length: 16 }, (_, index) => ({
      role: 'LaN ü',
      priority: 15 - index,
      x: { y: [null] },
    }));
    expect(readCandidates(sixteen)).toBe(sixteen);
    expect(readCandidates([])).toEqual([]);
    expect(readCandidates([{}])).toEqual([{}]);
  });

  test.each<[string, unknown]>([
    ['an object', {}],
    ['a string', 'lan'],
    ['false', false],
    ['an array in it', [[]]],
    ['null in it', [null]],
    ['a string in it', ['lan']],
    ['17 entries', Array(17).fill({})],
    ['a role that is not a string', [{ role: 1 }]],
    ['a priority that is not a number', [{ priority: '0' }]],
    ['a priority with a fraction', [{ priority: 0.5 }]],
    ['a port with a fraction, deep down', [{ api: { port: 1.5 } }]],
    ['a number beyond exact integers', [{ priority: 1e300 }]],
  ])('refuses %s', (_, value) => {
    expect(() => readCandidates(value)).toThrow(invalid);
  });
});

describe('tailscale candidates (contract 01 §5.4)', () => {
  const tailnet = (more: Partial<Tailnet> = {}): Tailnet => ({
    address: '100.64.0.7',
    name: 'box.tail1234.ts.net',
    servedPorts: [8642, 8767],
    funnelPorts: [],
    ...more,
  });
  const network = (state: Tailnet | null): HostNetwork => ({
    lanAddress: async () => null,
    tailnet: async () => state,
    canConnect: async () => false,
    addresses: () => [],
    resolve: async () => [],
    canListen: async () => false,
  });
  const plain = { apiTls: false, relayTls: false };
  const stale: Candidate = {
    role: 'TailScale',
    priority: 3,
    api: { host: 'old.ts.net', port: 8642, tls: false },
    relay: { url: 'ws://old.ts.net:8767/ws?x=1', transport_hint: 'ws' },
    note: 'kept',
  };
  const lan: Candidate = { role: 'lan', priority: 0, api: { host: 'old.ts.net', port: 1, tls: false } };
  const corrected = async (candidate: Candidate, state: Tailnet | null, direct = plain) =>
    (await correctTailscale([candidate], direct, network(state)))[0];

  test('both ports served: TLS and the name; ports, path, priority, role and unknown members are kept', async () => {
    expect(await correctTailscale([lan, stale, lan], plain, network(tailnet()))).toEqual([
      lan,
      {
        ...stale,
        api: { host: 'box.tail1234.ts.net', port: 8642, tls: true },
        relay: { url: 'wss://box.tail1234.ts.net:8767/ws?x=1', transport_hint: 'wss' },
      },
      lan,
    ]);
  });

  test.each([
    ['only one port is served', { servedPorts: [8767] }],
    ['nothing is served', { servedPorts: [] }],
    ['the name is no .ts.net name', { name: 'box.example' }],
    ['there is no name', { name: null }],
  ])('%s: the address and the plain schemes', async (_, state) => {
    const was = { ...stale, api: { host: 'x.ts.net', port: 8642, tls: true }, relay: { url: 'wss://x.ts.net:8767' } };
    expect(await corrected(was, tailnet(state))).toEqual({
      ...stale,
      api: { host: '100.64.0.7', port: 8642, tls: false },
      relay: { url: 'ws://100.64.0.7:8767' },
    });
  });

  test('without a served port, the services keep their own schemes', async () => {
    const direct = { apiTls: true, relayTls: true };
    expect(await corrected(stale, tailnet({ servedPorts: [] }), direct)).toMatchObject({
      api: { host: '100.64.0.7', tls: true },
      relay: { url: 'wss://100.64.0.7:8767/ws?x=1', transport_hint: 'wss' },
    });
  });

  test('a port implied by the scheme is kept', async () => {
    const was = { role: 'tailscale', relay: { url: 'wss://x.ts.net' } };
    expect(await corrected(was, tailnet())).toEqual({ role: 'tailscale', relay: { url: 'ws://100.64.0.7:443' } });
    expect(await corrected(was, tailnet({ servedPorts: [443] }))).toEqual({
      role: 'tailscale',
      relay: { url: 'wss://box.tail1234.ts.net' },
    });
  });

  test('an IPv6 address is bracketed in the URL only', async () => {
    expect(await corrected(stale, tailnet({ name: null, address: 'fd7a::1' }))).toMatchObject({
      api: { host: 'fd7a::1' },
      relay: { url: 'ws://[fd7a::1]:8767/ws?x=1' },
    });
  });

  test('nothing changes without the CLI, without an address, without a host', async () => {
    expect(await corrected(stale, null)).toBe(stale);
    expect(await corrected(stale, tailnet({ name: null, address: null }))).toBe(stale);
    expect(await correctTailscale([stale], plain, undefined)).toEqual([stale]);
  });

  test('odd shapes pass through', async () => {
    const odd: Candidate = { role: 'tailscale', api: 'x', relay: { url: 7 } };
    expect(await corrected(odd, tailnet())).toEqual(odd);
    expect(await corrected({ role: 'tailscale', relay: { url: 'nonsense' } }, tailnet())).toEqual({
      role: 'tailscale',
      relay: { url: 'nonsense' },
    });
  });
});
