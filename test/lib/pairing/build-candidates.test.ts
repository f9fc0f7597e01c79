import { describe, expect, test } from 'vitest';
import { buildCandidates, type CandidateSources, preferRole } from '../../../lib/pairing/build-candidates.ts';

const facts: CandidateSources = {
  mode: 'auto',
  api: { port: 8642, tls: false },
  relay: { port: 8767, tls: false },
  lanAddress: '192.168.1.20',
  tailnet: { address: '100.64.0.7', name: 'box.tail1.ts.net', servedPorts: [], funnelPorts: [] },
  publicUrl: 'https://relay.example.com',
};
const served = { ...(facts.tailnet as object), servedPorts: [8642, 8767] } as CandidateSources['tailnet'];
const funnel = { ...(facts.tailnet as object), funnelPorts: [8767] } as CandidateSources['tailnet'];

const build = (changes: Partial<CandidateSources> = {}) => buildCandidates({ ...facts, ...changes });
const only = (mode: CandidateSources['mode'], changes: Partial<CandidateSources> = {}) =>
  build({ mode, ...changes })[0];

describe('candidates of svc pair (01 §9.4)', () => {
  test('auto: tailscale, public, lan', () => {
    expect(build()).toEqual([
      {
        role: 'tailscale',
        priority: 0,
        api: { host: '100.64.0.7', port: 8642, tls: false },
        relay: { url: 'ws://100.64.0.7:8767', transport_hint: 'ws' },
      },
      {
        role: 'public',
        priority: 1,
        api: { host: 'relay.example.com', port: 443, tls: true },
        relay: { url: 'wss://relay.example.com:8767', transport_hint: 'wss' },
      },
      {
        role: 'lan',
        priority: 2,
        api: { host: '192.168.1.20', port: 8642, tls: false },
        relay: { url: 'ws://192.168.1.20:8767', transport_hint: 'ws' },
      },
    ]);
  });

  test('auto leaves out roles that the host cannot serve', () => {
    expect(build({ tailnet: null, publicUrl: undefined }).map(({ role, priority }) => [role, priority])).toEqual([
      ['lan', 0],
    ]);
    expect(build({ tailnet: null, publicUrl: undefined, lanAddress: null })).toEqual([]);
  });

  test('an explicit mode is that role only', () => {
    for (const mode of ['lan', 'tailscale', 'public'] as const) {
      expect(build({ mode }).map(({ role, priority }) => [role, priority])).toEqual([[mode, 0]]);
    }
    expect(build({ mode: 'tailscale', tailnet: null })).toEqual([]);
  });

  test('tailscale: TLS and name only when both ports are served', () => {
    expect(only('tailscale', { tailnet: served })).toMatchObject({
      api: { host: 'box.tail1.ts.net', port: 8642, tls: true },
      relay: { url: 'wss://box.tail1.ts.net:8767', transport_hint: 'wss' },
    });
    const half = { ...(served as NonNullable<typeof served>), servedPorts: [8767] };
    expect(only('tailscale', { tailnet: half })?.relay.url).toBe('ws://100.64.0.7:8767');
    expect(only('tailscale', { tailnet: half, api: null })).toEqual({
      role: 'tailscale',
      priority: 0,
      relay: { url: 'wss://box.tail1.ts.net:8767', transport_hint: 'wss' },
    });
    expect(only('tailscale', { relay: { port: 8767, tls: true } })?.relay.url).toBe('wss://100.64.0.7:8767');
  });

  test.each([
    ['http://a.example', 80, false, 'ws://a.example:8767'],
    ['https://a.example:8443', 8443, true, 'wss://a.example:8767'],
    ['https://a.example/relay', 443, true, 'wss://a.example/relay'],
    ['https://a.example:8443/x/relay/', 8443, true, 'wss://a.example:8443/x/relay'],
    ['http://[2001:db8::1]', 80, false, 'ws://[2001:db8::1]:8767'],
  ])('public: %s', (publicUrl, port, tls, url) => {
    expect(only('public', { publicUrl })).toMatchObject({ api: { port, tls }, relay: { url } });
    expect(only('public', { publicUrl })?.api?.host).not.toContain('[');
  });

  test('public: a funnel of the relay port is reached on 443', () => {
    for (const publicUrl of [undefined, 'https://box.tail1.ts.net']) {
      expect(only('public', { tailnet: funnel, publicUrl })).toMatchObject({
        api: { host: 'box.tail1.ts.net', port: 443, tls: true },
        relay: { url: 'wss://box.tail1.ts.net:443', transport_hint: 'wss' },
      });
    }
    expect(only('public', { tailnet: funnel })?.relay.url).toBe('wss://relay.example.com:8767');
    expect(only('public', { publicUrl: undefined })).toBeUndefined();
  });

  test('a disabled API server is in no candidate; one on another host keeps its host on the LAN', () => {
    for (const candidate of build({ api: null })) expect(candidate).not.toHaveProperty('api');
    expect(only('lan', { api: { host: '10.0.0.9', port: 443, tls: true } })?.api).toEqual({
      host: '10.0.0.9',
      port: 443,
      tls: true,
    });
  });

  test('prefer moves a role to the front and renumbers', () => {
    const preferred = preferRole(build(), 'LAN');
    expect(preferred?.map(({ role, priority }) => [role, priority])).toEqual([
      ['lan', 0],
      ['tailscale', 1],
      ['public', 2],
    ]);
    expect(preferRole(build(), 'pigeon')).toBeNull();
  });
});
