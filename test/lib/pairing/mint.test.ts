import { createHmac } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createStorage } from 'unstorage';
import { describe, expect, test, vi } from 'vitest';
import { canonicalJson } from '../../../lib/pairing/canonical-json.ts';
import { createMint, type Listener } from '../../../lib/pairing/mint.ts';
import { createRedemption } from '../../../lib/pairing/redemption.ts';
import { createQrSecret } from '../../../lib/pairing/secret.ts';
import type { PairingRecord } from '../../../storage/schema.ts';
import { codesOf } from '../../support/states.ts';
import { configOf, type FakeHostOptions, fakeClock, fakeHost, fakeLog, START } from './fixtures.ts';

interface Options extends FakeHostOptions {
  env?: Record<string, string>;
  listener?: Listener;
  edge?: boolean;
  /** The public URL that the operator has pinned. */
  pinned?: string | null;
}

async function setup({ env = {}, listener, edge = false, pinned = null, ...options }: Options = {}) {
  const host = edge ? undefined : await fakeHost(options);
  const { clock } = fakeClock();
  const { log, lines } = fakeLog();
  const codes = await codesOf(clock, log.named('pairing'));
  const store = createStorage<PairingRecord>();
  const publicUrl = async () => pinned;
  const signer = createQrSecret({ host, store, log });
  const made = createMint({
    config: configOf(env, host),
    host,
    codes,
    redemption: createRedemption({ codes }),
    secret: signer,
    publicUrl,
    log,
  });
  const at = listener ?? { host: '0.0.0.0', port: 8767, tls: false };
  const mint = {
    issue: (body: Record<string, unknown>) => made.issue(body, at),
    candidates: (publicUrl?: string) => made.candidates(at, publicUrl),
  };
  const secret = async () =>
    host
      ? readFile(join(host.agentHome, 'svc-relay-qr-secret'))
      : Buffer.from((await store.getItem('qr-secret'))?.secret ?? '', 'base64');
  return { mint, codes, lines, host, secret };
}

const signature = (payload: string, secret: Uint8Array) => {
  const { sig: _, ...signed } = JSON.parse(payload);
  return createHmac('sha256', secret).update(canonicalJson(signed)).digest('base64');
};

describe('mint (contract 01 §5.3)', () => {
  test('an empty request', async () => {
    const { mint, codes, secret } = await setup({ env: { API_SERVER_KEY: 'k' } });
    const answer = await mint.issue({});
    expect(answer).toEqual({
      ok: true,
      code: expect.stringMatching(/^[A-Z0-9]{6}$/),
      qr_payload: expect.any(String),
      pairing_url: expect.any(String),
      expires_at: START + 600,
      host: '192.168.1.20',
      port: 8642,
      tls: false,
      relay_url: 'ws://192.168.1.20:8767',
    });
    const payload = JSON.parse(answer.qr_payload);
    expect(payload).toEqual({
      svc: 1,
      host: '192.168.1.20',
      port: 8642,
      key: 'k',
      tls: false,
      relay: { url: 'ws://192.168.1.20:8767', code: answer.code, secret: expect.stringMatching(/^[\w-]{22}$/) },
      sig: signature(answer.qr_payload, await secret()),
    });
    expect(answer.qr_payload).toBe(JSON.stringify(payload));
    expect(answer.pairing_url).toBe(
      `svc-relay://pair?payload=${Buffer.from(answer.qr_payload, 'utf8').toString('base64url')}`,
    );
    expect(await codes.consume(answer.code)).toEqual({});
  });

  test('policy is bound to the code and written as integers', async () => {
    const { mint, codes } = await setup();
    const body = JSON.parse('{"ttl_seconds":3600.0,"grants":{"terminal":59.5},"transport_hint":"wss"}');
    const answer = await mint.issue(body);
    expect(JSON.parse(answer.qr_payload)).toMatchObject({ svc: 2 });
    expect(answer.qr_payload).toContain('"ttl_seconds":3600,"grants":{"terminal":60},"transport_hint":"wss"');
    expect(await codes.consume(answer.code)).toEqual({
      ttlSeconds: 3600,
      grants: { terminal: 60 },
      transportHint: 'wss',
    });
  });

  test('dashboard_url and endpoints are mirrored, and covered by the signature', async () => {
    const { mint, secret } = await setup();
    const endpoints = [
      { role: 'Büro 😀', priority: 1 },
      { role: 'lan', priority: 0 },
    ];
    const answer = await mint.issue({ dashboard_url: 'https://box.example/d//', endpoints });
    expect(answer).toMatchObject({ dashboard_url: 'https://box.example/d', endpoints });
    const payload = JSON.parse(answer.qr_payload);
    expect(payload).toMatchObject({ svc: 3, dashboard_url: 'https://box.example/d', endpoints });
    expect(Object.keys(payload)).toEqual([
      'svc',
      'host',
      'port',
      'key',
      'tls',
      'relay',
      'endpoints',
      'dashboard_url',
      'sig',
    ]);
    expect(payload.sig).toBe(signature(answer.qr_payload, await secret()));
  });

  test('the alias dashboardUrl; empty is absent', async () => {
    const { mint } = await setup();
    expect((await mint.issue({ dashboardUrl: 'http://d' })).dashboard_url).toBe('http://d');
    expect((await mint.issue({ dashboard_url: null, dashboardUrl: 'http://d' })).dashboard_url).toBe('http://d');
    for (const dashboard_url of ['', null]) {
      expect(await mint.issue({ dashboard_url })).not.toHaveProperty('dashboard_url');
    }
  });

  test('empty endpoints are mirrored but not in the payload', async () => {
    const answer = await (await setup()).mint.issue({ endpoints: [] });
    expect(answer.endpoints).toEqual([]);
    expect(JSON.parse(answer.qr_payload)).toMatchObject({ svc: 1 });
    expect(JSON.parse(answer.qr_payload)).not.toHaveProperty('endpoints');
  });

  test('tailscale candidates are corrected in payload and answer alike', async () => {
    const tailnet = { address: '100.64.0.7', name: null, servedPorts: [], funnelPorts: [] };
    const { mint } = await setup({ tailnet, listener: { host: '0.0.0.0', port: 8767, tls: true } });
    const answer = await mint.issue({ endpoints: [{ role: 'tailscale', relay: { url: 'ws://old:8767' } }] });
    expect(answer.endpoints).toEqual([{ role: 'tailscale', relay: { url: 'wss://100.64.0.7:8767' } }]);
    expect(JSON.parse(answer.qr_payload).endpoints).toEqual(answer.endpoints);
  });

  test('a disabled API server is in neither', async () => {
    const answer = await (await setup({ env: { API_SERVER_ENABLED: '0' } })).mint.issue({});
    expect(Object.keys(answer)).toEqual(['ok', 'code', 'qr_payload', 'pairing_url', 'expires_at', 'relay_url']);
    expect(Object.keys(JSON.parse(answer.qr_payload))).toEqual(['svc', 'relay', 'sig']);
  });

  test.each<[Listener, string | null, string]>([
    [{ host: '0.0.0.0', port: 8767, tls: true }, '10.0.0.2', 'wss://10.0.0.2:8767'],
    [{ host: '127.0.0.1', port: 443, tls: true }, '10.0.0.2', 'wss://127.0.0.1:443'],
    [{ host: '::1', port: 8767, tls: false }, '10.0.0.2', 'ws://127.0.0.1:8767'],
    [{ host: 'localhost', port: 8767, tls: false }, '10.0.0.2', 'ws://127.0.0.1:8767'],
    [{ host: '10.9.9.9', port: 1, tls: false }, '10.0.0.2', 'ws://10.9.9.9:1'],
    [{ host: 'fd00::9', port: 8767, tls: false }, null, 'ws://[fd00::9]:8767'],
    [{ host: '::', port: 8767, tls: false }, 'fd00::2', 'ws://[fd00::2]:8767'],
    [{ host: '127.0.0.1', port: 8767, tls: false }, null, 'ws://127.0.0.1:8767'],
  ])('relay URL of %j', async (listener, lan, url) => {
    expect((await (await setup({ listener, lan })).mint.issue({})).relay_url).toBe(url);
  });

  test('at the edge: the public name, the store holds the secret', async () => {
    const { mint, secret } = await setup({ edge: true, listener: { host: 'relay.example', port: 443, tls: true } });
    const answer = await mint.issue({});
    expect(answer.relay_url).toBe('wss://relay.example');
    expect(answer).not.toHaveProperty('host');
    expect(JSON.parse(answer.qr_payload).sig).toBe(signature(answer.qr_payload, await secret()));
    const other = await setup({ edge: true, listener: { host: 'relay.example', port: 8443, tls: true } });
    expect((await other.mint.issue({ host: 'api.example' })).relay_url).toBe('wss://relay.example:8443');
  });

  test('without a readable secret: no sig, a warning, but still a code', async () => {
    const { mint, codes, lines } = await setup({
      files: { createExclusive: () => Promise.reject(new Error('read-only')) },
    });
    const answer = await mint.issue({});
    expect(JSON.parse(answer.qr_payload)).not.toHaveProperty('sig');
    expect(lines.filter((line) => line.includes('[WARNING]'))).toHaveLength(1);
    expect(await codes.consume(answer.code)).toEqual({});
  });

  test('§10 the log contains neither code nor key nor payload', async () => {
    const { mint, lines } = await setup();
    const answer = await mint.issue({ api_key: 'hush-hush', ttl_seconds: 60 });
    const text = lines.join('\n');
    expect(text).toContain(`${answer.code.slice(0, 2)}****`);
    expect(text).toContain('API key present');
    expect(text).not.toContain(answer.code);
    expect(text).not.toContain('hush');
    expect(text).not.toContain(JSON.parse(answer.qr_payload).sig);
  });
});

describe('every refusal names its field and leaves no code behind (contract 01 §5.3)', () => {
  const candidate = { role: 'lan', priority: 0 };
  test.each<[string, Record<string, unknown>]>([
    ['host', { host: '' }],
    ['host', { host: 5 }],
    ['host', { host: 'http://x' }],
    ['port', { port: 0 }],
    ['port', { port: 65536 }],
    ['port', { port: 80.5 }],
    ['port', { port: '80x' }],
    ['port', { port: true }],
    ['tls', { tls: 'yes' }],
    ['tls', { tls: 1 }],
    ['api_key', { api_key: 5 }],
    ['api_key', { api_key: 'a\nb' }],
    ['api_key', { api_key: 'ü' }],
    ['dashboard_url', { dashboard_url: 5 }],
    ['dashboard_url', { dashboard_url: '/relative' }],
    ['dashboard_url', { dashboard_url: 'ftp://x' }],
    ['dashboard_url', { dashboard_url: 'https://' }],
    ['dashboard_url', { dashboard_url: 'https://a b' }],
    ['dashboard_url', { dashboard_url: 'javascript:alert(1)' }],
    ['dashboard_url', { dashboardUrl: 'x' }],
    ['ttl_seconds', { ttl_seconds: -1 }],
    ['ttl_seconds', { ttl_seconds: '1' }],
    ['grants', { grants: [] }],
    ['grants.chat', { grants: { chat: true } }],
    ['transport_hint', { transport_hint: 'tcp' }],
    ['endpoints', { endpoints: {} }],
    ['endpoints', { endpoints: ['lan'] }],
    ['endpoints', { endpoints: Array(17).fill(candidate) }],
  ])('%s: %j', async (field, body) => {
    const { mint, codes } = await setup();
    const made = vi.spyOn(codes, 'mint');
    const refusal = expect.objectContaining({ kind: 'invalid', message: expect.stringContaining(field) });
    await expect(mint.issue({ ttl_seconds: 60, endpoints: [candidate], ...body })).rejects.toThrow(refusal);
    expect(made).not.toHaveBeenCalled();
  });

  test('an un-overridden wildcard', async () => {
    const { mint, codes } = await setup({ env: { RELAY_WEBAPI_URL: 'http://0.0.0.0:8642' } });
    const made = vi.spyOn(codes, 'mint');
    await expect(mint.issue({})).rejects.toThrow(/host/);
    expect(made).not.toHaveBeenCalled();
    expect((await mint.issue({ host: 'localhost' })).host).toBe('192.168.1.20');
  });
});

describe('the ways that the console offers (contract 01 §9.4)', () => {
  const tailnet = { address: '100.64.0.7', name: 'home.tail.ts.net', servedPorts: [], funnelPorts: [] };
  const urls = (candidates: { role: string; relay: { url: string } }[]) =>
    candidates.map(({ role, relay }) => `${role} ${relay.url}`);

  test('tailnet, public URL and LAN, as a code may name them', async () => {
    const { mint } = await setup({ tailnet, pinned: 'https://pinned.example' });
    const found = await mint.candidates();
    expect(urls(found)).toEqual([
      'tailscale ws://100.64.0.7:8767',
      'public wss://pinned.example:8767',
      'lan ws://192.168.1.20:8767',
    ]);
    expect(urls(await mint.candidates('https://relay.example.com/svc'))[1]).toBe('public wss://relay.example.com/svc');
    const { endpoints } = await mint.issue({ endpoints: found });
    expect(endpoints).toEqual(found);
  });

  test('none at the edge, which has one address', async () => {
    const { mint } = await setup({ edge: true, listener: { host: 'relay.example.com', port: 443, tls: true } });
    expect(await mint.candidates()).toEqual([]);
  });
});
