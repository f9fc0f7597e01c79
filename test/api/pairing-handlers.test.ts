import { createStorage } from 'unstorage';
import { describe, expect, test } from 'vitest';
import { approveCode, createCode, mintCode, registerCode } from '../../handlers/pairing.ts';
import type { RelayRequest } from '../../handlers/request.ts';
import { openLocalOperator } from '../../lib/access/local-operator.ts';
import type { Peer } from '../../lib/access/peer.ts';
import { createMint } from '../../lib/pairing/mint.ts';
import { createRedemption } from '../../lib/pairing/redemption.ts';
import { createQrSecret } from '../../lib/pairing/secret.ts';
import type { Relay } from '../../lib/relay.ts';
import type { PairingRecord } from '../../storage/schema.ts';
import { configOf, fakeClock, fakeHost, fakeLog, START } from '../lib/pairing/fixtures.ts';
import { codesOf, limiterOf } from '../support/states.ts';

const LOCAL: Peer = { address: '127.0.0.1', tls: false, via: 'direct', ends: () => ({ local: {}, remote: {} }) };
const LAN: Peer = { address: '192.168.1.50', tls: false, via: 'direct' };

async function setup(env: Record<string, string> = {}) {
  const host = await fakeHost();
  const { clock, advance } = fakeClock();
  const { log, lines } = fakeLog();
  const config = configOf(env, host);
  const codes = await codesOf(clock, log.named('pairing'));
  const limiter = await limiterOf(clock);
  const listener = { host: '0.0.0.0', port: 8767, tls: false };
  const secret = createQrSecret({ host, store: createStorage<PairingRecord>(), log });
  const redemption = createRedemption({ codes });
  const mint = createMint({ config, host, codes, redemption, secret, log });
  const operatorTokens = { verify: async (token: string | null) => token === 'operator' };
  const localOperator = await openLocalOperator({ host, config, clock, log: fakeLog().log });
  const tokens = { localOperator, operatorTokens };
  const deps: Partial<Relay> = { config, clock, log, host, codes, redemption, limiter, mint, listener, ...tokens };
  return { relay: deps as Relay, advance, lines };
}

function post(peer: Peer, body?: unknown, headers: Record<string, string> = {}): RelayRequest {
  const request = new Request('http://127.0.0.1:8767/pairing', {
    method: 'POST',
    body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
    headers: { host: '127.0.0.1:8767', ...headers },
  });
  return Object.assign(request, { peer, params: {}, query: {}, httpVersion: '1.1', target: '/pairing' });
}

const rateLimited = (retryAfter: number) => expect.objectContaining({ kind: 'rate-limited', retryAfter });
const invalid = (field: string) =>
  expect.objectContaining({ kind: 'invalid', message: expect.stringContaining(field) });

describe('POST /pairing (contract 01 §5.5)', () => {
  test('the host gets the code, with the default policy whatever the body says', async () => {
    const { relay, lines } = await setup();
    const answer = await createCode(post(LOCAL, { ttl_seconds: 0, grants: { terminal: 0 } }), relay);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    const body = await answer.json();
    expect(body).toEqual({ ok: true, code: expect.stringMatching(/^[A-Z0-9]{6}$/), expires_at: START + 600 });
    expect(await relay.codes.consume(body.code)).toEqual({});
    expect(lines.join()).not.toContain(body.code);
  });

  test.each<[string, Peer, Record<string, string>]>([
    ['the network', LAN, {}],
    ['a proxy on this host', LOCAL, { 'x-forwarded-for': '127.0.0.1' }],
    ['a page in a browser', LOCAL, { origin: 'https://evil.example' }],
    // A stream of Reach has no address of its own, and is never named by that of this host.
    ['a tunnel', { ...LOCAL, via: 'reach' }, {}],
    ['the edge without a token', { address: '203.0.113.1', tls: true, via: 'edge' }, { authorization: 'Bearer x' }],
  ])('%s gets no code; it is on the console once, with the peer', async (_, peer, headers) => {
    const { relay, lines } = await setup();
    const answer = await createCode(post(peer, 'no JSON at all', headers), relay);
    expect(answer.status).toBe(202);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(await answer.json()).toEqual({ ok: true, pending: true, expires_at: START + 600 });
    expect(lines).toEqual([
      expect.stringMatching(/\[WARNING\] pairing: .*\brun: svc pair --register-code [A-Z0-9]{6}$/),
    ]);
    expect(lines[0]).toContain(`pairing: ${peer.via === 'reach' ? 'reach' : peer.address}`);
    const code = (lines[0] as string).slice(-6);
    expect(await relay.codes.consume(code), 'not before it is registered').toBeUndefined();
    await registerCode(post(LOCAL, { code, ttl_seconds: 60 }), relay);
    expect(await relay.codes.consume(code)).toEqual({ ttlSeconds: 60 });
  });

  test('at the edge the operator counts as the host', async () => {
    const { relay } = await setup();
    const peer: Peer = { address: '203.0.113.1', tls: true, via: 'edge' };
    const answer = await createCode(post(peer, undefined, { authorization: 'Bearer operator' }), relay);
    expect(await answer.json()).toMatchObject({ ok: true, code: expect.any(String) });
  });

  test('the sixth in a minute is refused, per peer, also on loopback', async () => {
    const { relay, advance } = await setup();
    for (let count = 0; count < 5; count++) await createCode(post(LOCAL), relay);
    advance(10);
    await expect(createCode(post(LOCAL), relay)).rejects.toThrow(rateLimited(50));
    expect((await createCode(post(LAN), relay)).status).toBe(202);
    advance(50);
    expect((await createCode(post(LOCAL), relay)).status).toBe(200);
  });

  test('a blocked peer is refused', async () => {
    const { relay } = await setup();
    for (let count = 0; count < 10; count++) relay.limiter.fail('192.168.1.50', 'pairing');
    await expect(createCode(post(LAN), relay)).rejects.toThrow(rateLimited(120));
    expect((await createCode(post(LOCAL), relay)).status).toBe(200);
  });

  test('at most 32 wait, over all peers', async () => {
    const { relay } = await setup();
    const peer = (index: number): Peer => ({ ...LAN, address: `10.0.0.${index}` });
    for (let index = 0; index < 32; index++) await createCode(post(peer(index)), relay);
    await expect(createCode(post(peer(33)), relay)).rejects.toThrow(rateLimited(60));
    expect((await createCode(post(LOCAL), relay)).status, 'strangers do not stop the operator').toBe(200);
  });
});

describe.each([
  ['register', registerCode],
  ['approve', approveCode],
])('POST /pairing/%s (contract 01 §5.2)', (_, handler) => {
  test('registers a trimmed, upper-cased code with its policy', async () => {
    const { relay, lines } = await setup();
    const answer = await handler(post(LOCAL, { code: ' abc123 ', ttl_seconds: 60, transport_hint: 'wss' }), relay);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(await answer.json()).toEqual({ ok: true, code: 'ABC123' });
    expect(lines.join()).toContain('AB****');
    expect(lines.join()).not.toContain('ABC123');
    expect(await relay.codes.consume('ABC123')).toEqual({ ttlSeconds: 60, transportHint: 'wss' });
  });

  test('clears every limit', async () => {
    const { relay } = await setup();
    for (let count = 0; count < 5; count++) relay.limiter.fail('10.0.0.1', 'session');
    expect(relay.limiter.blockedFor('10.0.0.1')).toBe(300);
    await handler(post(LOCAL, { code: 'ABC123' }), relay);
    expect(relay.limiter.blockedFor('10.0.0.1')).toBe(0);
  });

  test.each<[string, Record<string, unknown>]>([
    ['code', {}],
    ['code', { code: null }],
    ['code', { code: '' }],
    ['code', { code: '  ' }],
    ['code', { code: 123456 }],
    ['code', { code: 'ABC12' }],
    ['code', { code: 'ABC1234' }],
    ['code', { code: 'ABC-12' }],
    ['code', { code: 'ßABCD' }],
    ['code', { code: 'ABCDEı' }],
    ['ttl_seconds', { code: 'ABC123', ttl_seconds: '60' }],
    ['grants', { code: 'ABC123', grants: { chat: 'x' } }],
    ['transport_hint', { code: 'ABC123', transport_hint: 'x' }],
  ])('a bad %s: %j; nothing is registered, no limit cleared', async (field, body) => {
    const { relay } = await setup();
    for (let count = 0; count < 5; count++) relay.limiter.fail('10.0.0.1', 'session');
    await expect(handler(post(LOCAL, body), relay)).rejects.toThrow(invalid(field));
    expect(await relay.codes.consume('ABC123')).toBeUndefined();
    expect(relay.limiter.blockedFor('10.0.0.1')).toBe(300);
  });

  test.each(['', '[]', '{', '1', '{"code":"ABC123","ttl_seconds":1e999}'])('a bad body: %s', async (body) => {
    const { relay } = await setup();
    await expect(handler(post(LOCAL, body), relay)).rejects.toThrow(expect.objectContaining({ kind: 'invalid' }));
  });
});

test('§5.2 register echoes endpoints and refuses anything but an array', async () => {
  const { relay } = await setup();
  const endpoints = [1, { role: 'x' }];
  const answer = await registerCode(post(LOCAL, { code: 'ABC123', endpoints }), relay);
  expect(await answer.json()).toEqual({ ok: true, code: 'ABC123', endpoints });
  await expect(registerCode(post(LOCAL, { code: 'XYZ123', endpoints: {} }), relay)).rejects.toThrow(
    invalid('endpoints'),
  );
  expect(await relay.codes.consume('XYZ123')).toBeUndefined();
});

describe('POST /pairing/mint (contract 01 §5.3)', () => {
  test('an empty body is allowed; limits are cleared', async () => {
    const { relay } = await setup();
    for (let count = 0; count < 6; count++) relay.limiter.mint('10.0.0.1');
    const answer = await mintCode(post(LOCAL), relay);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(await answer.json()).toMatchObject({ ok: true, relay_url: 'ws://192.168.1.20:8767' });
    expect(relay.limiter.mint('10.0.0.1')).toBe(0);
  });

  test('a refusal clears nothing', async () => {
    const { relay } = await setup();
    for (let count = 0; count < 5; count++) relay.limiter.fail('10.0.0.1', 'session');
    await expect(mintCode(post(LOCAL, { port: 0 }), relay)).rejects.toThrow(invalid('port'));
    expect(relay.limiter.blockedFor('10.0.0.1')).toBe(300);
  });
});
