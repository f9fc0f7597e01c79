import { createSecretKey } from 'node:crypto';
import { exportPKCS8, exportSPKI, generateKeyPair, SignJWT } from 'jose';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { cleanups } from '../support/built-relay.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { type EdgeRuntime, startEdgeRuntime } from '../support/edge-runtime.ts';
import { frame, OPCODE, openRaw, textFrame } from '../support/raw-socket.ts';
import { authenticate, bearer, pair, post, type Target } from '../support/relay.ts';

const pending = cleanups();

describe('the edge', () => {
  const running: Target[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((target) => target.stop()));
  });
  const start = async (options?: Parameters<typeof startEdgeTarget>[0]) => {
    const target = await startEdgeTarget(options);
    running.push(target);
    return target;
  };

  it('a refused body does not break the next request on the same connection', async () => {
    const target = await start();
    for (let round = 0; round < 10; round++) {
      // Not `target.fetch`, which uses a new connection each time.
      for (const [path, status] of [
        ['/pairing/register', 403],
        ['/nowhere', 404],
      ] as const) {
        const refused = await fetch(target.url + path, { method: 'POST', body: '{"code":"ABC123"}' });
        expect([refused.status, (await refused.json()).ok]).toEqual([status, false]);
      }
      const healthy = await fetch(`${target.url}/health`);
      expect([healthy.status, (await healthy.json()).status]).toEqual([200, 'ok']);
    }
  });

  it.each([
    ['reserved opcode', frame({ opcode: 3, payload: '{}' })],
    ['continuation of nothing', frame({ opcode: OPCODE.continuation, payload: 'x' })],
    ['length beyond 2^53', frame({ length: 2n ** 60n, lengthBits: 64 })],
  ])('a socket that sends a broken frame is forgotten: %s', async (_name, bytes) => {
    const target = await start();
    const { client, token } = await pair(target);
    pending.push(client.terminate);
    const clients = async () => (await (await target.fetch('/health')).json()).clients;
    const { port, hostname } = new URL(target.url);
    const raw = await openRaw(Number(port), { headers: { host: hostname } });
    pending.push(raw.destroy);
    raw.write(textFrame('system', 'auth', { session_token: token }));
    expect((await raw.envelope()).type).toBe('auth.ok');
    expect(await clients()).toBe(2);
    raw.write(bytes);
    await expect.poll(clients).toBe(1);
    client.send('system', 'ping', {}, 'after');
    expect((await client.next({ id: 'after' })).type).toBe('pong');
  });

  it('contract 01 §12: has no loopback: operator routes need an operator token', async () => {
    const target = await start();
    for (const headers of [{}, { 'x-svc-operator': '1' }] as Record<string, string>[]) {
      for (const path of ['/pairing/register', '/pairing/mint']) {
        expect((await target.fetch(path, { ...post({ code: 'ABC123' }), headers })).status).toBe(403);
      }
      const sessions = await target.fetch('/sessions', { headers: { ...headers, 'x-svc-operator': '1' } });
      expect(sessions.status).toBe(401);
    }
    const { token } = await pair(target);
    expect((await target.fetch('/pairing/mint', { method: 'POST', headers: bearer(token) })).status).toBe(403);
  });

  it('contract 01 §12: an operator token needs no further header, and refusals do not speak of a host', async () => {
    const target = await start();
    const { token } = await pair(target);
    for (const path of ['/sessions', '/phone/history', '/phone/outbound', '/context/injected']) {
      const opened = await target.operator(path);
      expect(opened.status, path).toBe(200);
      expect((await target.fetch(path, { headers: bearer(`${token.slice(0, -1)}!`) })).status, path).toBe(401);
    }
    expect((await target.fetch('/sessions', { headers: bearer(token) })).status).toBe(200);
    for (const headers of [{}, bearer(token)]) {
      const refused = await target.fetch('/relay/devices', { headers });
      expect([refused.status, await refused.json()]).toEqual([
        403,
        { ok: false, error: 'only the operator may call this, with an operator token' },
      ]);
    }
    await expect.poll(() => target.log.join('\n')).toContain('to /relay/devices: without an operator token');
    expect(target.log.join('\n')).not.toContain('to /relay/devices: remote');
  });

  it('contract 01 §12: without a public key nobody is the operator', async () => {
    const target = await start({ env: { RELAY_OPERATOR_PUBLIC_KEY: '' } });
    expect((await target.operator('/pairing/register', post({ code: 'ABC123' }))).status).toBe(401);
  });

  it('contract 01 §12: keeps relays of different host names apart', async () => {
    const [target, other] = [await start(), await start()];
    const { token } = await pair(target);
    expect((await target.fetch('/sessions', { headers: bearer(token) })).status).toBe(200);
    expect((await other.fetch('/sessions', { headers: bearer(token) })).status).toBe(401);
  });

  it('contract 01 §12: logs every warning of the configuration, and what stops it', async () => {
    const target = await start({ env: { RELAY_MEDIA_LRU_CAP: 'many', RELAY_LOG_LEVEL: 'loud' } });
    expect((await target.fetch('/health')).status).toBe(200);
    for (const name of ['RELAY_MEDIA_LRU_CAP', 'RELAY_LOG_LEVEL']) {
      await expect.poll(() => target.log.join('\n')).toMatch(new RegExp(`\\[WARNING\\].* ${name} is not`));
    }

    const broken = await start({ env: { RELAY_WEBAPI_URL: 'ftp://nowhere' } });
    await broken.fetch('/health').then((answer) => expect(answer.status).toBe(500));
    await expect.poll(() => broken.log.join('\n')).toMatch(/\[ERROR\].*Invalid RELAY_WEBAPI_URL/);
  });

  it('contract 01 §12: RELAY_PAIRING_CODE counts once, also after a restart of the object', async () => {
    const target = await start({ env: { RELAY_PAIRING_CODE: 'ABC123' } });
    const attempt = async () => {
      const { client, frame: answer } = await authenticate(target, { pairing_code: 'ABC123', device_id: 'd' });
      client.terminate();
      return answer.type;
    };
    expect(await attempt()).toBe('auth.ok');
    expect(await attempt()).toBe('auth.fail');
    await target.restart();
    expect(await attempt()).toBe('auth.fail');
  });
});

describe('which relay answers at the edge (contract 01 §12)', () => {
  let runtime: EdgeRuntime;
  beforeAll(async () => {
    runtime = await startEdgeRuntime({ RELAY_NAME: 'home', RELAY_HOSTS: 'a.example, B.example=second,c.example=home' });
  });
  afterAll(() => runtime.stop());
  const status = async (url: string, init?: RequestInit) => (await runtime.dispatch(url, init)).status;

  it('invented hosts and paths make no object', async () => {
    for (let index = 0; index < 214; index++) {
      expect(await status(`https://invented-${index}.example/health`)).toBe(421);
      expect(await status(`https://a.example/invented/${index}`)).toBe(404);
    }
    for (const path of ['/wp-login.php', '/pairing/mint/x', '/%68ealth', '/ws/x', '/media/a/b/c', '/sessions/a/b']) {
      expect(await status(`https://a.example${path}`), path).toBe(404);
    }
    for (const host of ['a.example.evil', 'a.example.', 'xa.example', 'home', '[::1]', 'x.localhost']) {
      expect(await status(`https://${host}/health`), host).toBe(421);
    }
    const upgrade = { headers: { connection: 'upgrade', upgrade: 'websocket' } };
    expect(await status('https://invented.example/ws', upgrade)).toBe(421);
    expect(await status('https://a.example/socket', upgrade)).toBe(404);
    expect(await runtime.count()).toBe(0);

    expect(await status('https://a.example/health')).toBe(200);
    expect(await runtime.count()).toBe(1);
  });

  it('plain http goes to https, also for a socket, and makes no object', async () => {
    const before = await runtime.count();
    for (const init of [{}, { method: 'POST' }, { headers: { connection: 'upgrade', upgrade: 'websocket' } }]) {
      const answer = await runtime.dispatch('http://b.example/phone/replies?timeout=1', init);
      expect(answer.status).toBe(308);
      expect(answer.headers.get('location')).toBe('https://b.example/phone/replies?timeout=1');
    }
    expect(await status('http://invented.example/health')).toBe(421);
    expect(await runtime.count()).toBe(before);
  });

  it('hosts share a relay by its name; localhost and 127.0.0.1 are one', async () => {
    const names = { 'https://c.example': 'home', 'http://localhost': 'home', 'http://127.0.0.1': 'home' };
    const token = await runtime.operatorToken('home');
    const codes: string[] = [];
    for (const origin of Object.keys(names)) {
      const answer = await runtime.dispatch(`${origin}/pairing/mint`, { method: 'POST', headers: bearer(token) });
      codes.push((await answer.json()).relay_url);
    }
    expect(codes).toEqual(['wss://c.example', 'ws://localhost', 'ws://127.0.0.1']);
    const foreign = { method: 'POST', headers: bearer(token) };
    expect(await status('https://b.example/pairing/mint', foreign)).toBe(401);
    expect(await status('https://a.example/pairing/mint', foreign)).toBe(401);
  });

  it('refuses an operator token that is not for this relay, too long, expired, or of another algorithm', async () => {
    const now = Math.floor(Date.now() / 1000);
    const { privateKey, publicKey } = runtime;
    const make = (claims: Record<string, unknown>, alg = 'EdDSA', key: Parameters<SignJWT['sign']>[0] = privateKey) =>
      new SignJWT(claims).setProtectedHeader({ alg }).sign(key);
    const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const good = { aud: 'home', exp: now + 600 };
    const pem = await exportSPKI(publicKey);
    const { privateKey: stranger } = await generateKeyPair('EdDSA', { extractable: true });
    const { privateKey: otherKind } = await generateKeyPair('ES256');
    const tokens = {
      expired: await make({ ...good, exp: now - 1 }),
      'too long': await make({ ...good, exp: now + 1000 }),
      'no end': await make({ aud: 'home' }),
      'no audience': await make({ exp: now + 600 }),
      'another relay': await make({ ...good, aud: 'second' }),
      'a foreign URL': await make({ ...good, aud: 'https://evil.example' }),
      'the old audience': await make({ ...good, aud: 'svc-relay-operator' }),
      'alg none': `${encode({ alg: 'none' })}.${encode(good)}.`,
      'HS256 with the public key': await make(good, 'HS256', createSecretKey(Buffer.from(pem))),
      'HS256 with the line of the variable': await make(
        good,
        'HS256',
        createSecretKey(Buffer.from(pem.trim().replaceAll('\n', '\\n'))),
      ),
      'another key': await make(good, 'EdDSA', stranger),
      'another kind of key': await make(good, 'ES256', otherKind),
      'a private key': await exportPKCS8(stranger).then((text) => text.replace(/\s/g, '')),
    };
    for (const [what, token] of Object.entries(tokens)) {
      const answer = await runtime.dispatch('https://c.example/pairing/mint', {
        method: 'POST',
        headers: bearer(token),
      });
      expect(answer.status, what).toBe(401);
      expect(answer.headers.get('www-authenticate'), what).toBe('Bearer');
      await answer.text();
    }
    for (const aud of ['home', 'https://c.example', ['x', 'home']]) {
      const headers = bearer(await make({ ...good, aud }));
      expect(await status('https://c.example/pairing/mint', { method: 'POST', headers }), String(aud)).toBe(200);
    }
  });
});

describe('the own address at the edge (contract 01 §12)', () => {
  const HOSTS = ['evil.example', 'a.example', '127.0.0.1', 'evil.example:8443', 'localhost:1', 'b.example'];

  /** Payloads of 60 concurrent mints, by the host that asked; only those that were made. */
  async function mints(runtime: EdgeRuntime, token: string): Promise<{ host: string; urls: string[] }[]> {
    const made = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        const host = HOSTS[index % HOSTS.length] as string;
        const scheme = /^(?:127|localhost)/.test(host) ? 'http' : 'https';
        const init = { method: 'POST', headers: bearer(token), body: JSON.stringify({ ttl_seconds: index }) };
        const answer = await runtime.dispatch(`${scheme}://${host}/pairing/mint`, init);
        const body = await answer.json();
        return answer.status === 200 ? { host, urls: [body.relay_url, JSON.parse(body.qr_payload).relay.url] } : null;
      }),
    );
    return made.filter((entry) => entry !== null);
  }

  it('names the origin of the very request, and no other', async () => {
    const runtime = await startEdgeRuntime({ RELAY_NAME: 'home', RELAY_HOSTS: '' });
    try {
      const made = await mints(runtime, await runtime.operatorToken('home'));
      expect(made).toHaveLength(60);
      for (const { host, urls } of made) {
        const own = /^(?:127|localhost)/.test(host) ? `ws://${host}` : `wss://${host}`;
        expect(urls).toEqual([own, own]);
      }
      expect(await runtime.count()).toBe(1);
    } finally {
      await runtime.stop();
    }
  });

  it('RELAY_PUBLIC_URL: no other address gets into a payload, and no other host to an object', async () => {
    const env = { RELAY_NAME: 'home', RELAY_HOSTS: '', RELAY_PUBLIC_URL: 'https://a.example/' };
    const runtime = await startEdgeRuntime(env);
    try {
      const made = await mints(runtime, await runtime.operatorToken('https://a.example'));
      expect(new Set(made.map(({ host }) => host))).toEqual(new Set(['a.example', '127.0.0.1', 'localhost:1']));
      for (const { urls } of made) expect(urls).toEqual(['wss://a.example', 'wss://a.example']);
    } finally {
      await runtime.stop();
    }
  });

  it('an ES256 key signs as well', async () => {
    const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
    const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: await exportSPKI(publicKey), RELAY_HOSTS: '' });
    try {
      const sign = (exp: string) =>
        new SignJWT()
          .setProtectedHeader({ alg: 'ES256' })
          .setAudience('svc-relay')
          .setExpirationTime(exp)
          .sign(privateKey);
      const call = async (token: string) =>
        (await runtime.dispatch('https://x.example/bridge/devices', { headers: bearer(token) })).status;
      expect(await call(await sign('10m'))).toBe(200);
      expect(await call(await sign('16m'))).toBe(401);
      expect(await call(await runtime.operatorToken('svc-relay'))).toBe(401);
    } finally {
      await runtime.stop();
    }
  });
});
