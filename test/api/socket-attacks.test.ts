import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { expect, it, vi } from 'vitest';
import type { Channel, Connection } from '../../lib/socket/channel.ts';
import { type BuiltOptions, type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import type { Client } from '../support/client.ts';
import { createTestClock } from '../support/clock.ts';
import {
  connectRaw,
  exchange,
  frame,
  handshakeHeaders,
  OPCODE,
  openAuthenticated,
  openRaw,
  request,
  textFrame,
} from '../support/raw-socket.ts';
import { authenticate, bearer, pair, randomCode, registerCode } from '../support/relay.ts';

const MiB = 1024 * 1024;
const STRANGER = '203.0.113.9';
const pending = cleanups();

async function start(options: BuiltOptions = {}): Promise<BuiltTarget> {
  const target = await startBuiltTarget(options);
  pending.push(target.stop);
  return target;
}

const kept = <T extends Client>(client: T): T => {
  pending.push(() => client.terminate());
  return client;
};

async function device(target: BuiltTarget, options: Parameters<typeof pair>[1] = {}) {
  const paired = await pair(target, options);
  kept(paired.client);
  return paired;
}

/** Nothing with a real timer goes on from here: not the two seconds either that a closed client has to read on. */
function stopTimers(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  pending.push(() => vi.useRealTimers());
}

async function expectAlive(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  expect((await client.next({ id })).type).toBe('pong');
}

it('contract 01 §3.1: a handshake or a first frame that announces a huge length gets nothing for it', async () => {
  const target = await start();
  const { client } = await device(target);
  const before = process.memoryUsage().rss;
  const framed = await openRaw(target.port);
  pending.push(framed.destroy);
  framed.write(frame({ length: 2n ** 52n, lengthBits: 64, payload: 'x' }));
  expect((await framed.closing()).code).toBe(1009);
  const headed = await connectRaw(target.port);
  pending.push(headed.destroy);
  headed.write(request('GET', '/ws', { ...handshakeHeaders(), 'content-length': '99999999999999' }));
  expect([101, 400]).toContain((await headed.head()).status);
  const padded = await exchange(target.port, request('GET', '/ws', { ...handshakeHeaders(), x: 'y'.repeat(100_000) }));
  expect(padded.status).toBe(431);
  expect(process.memoryUsage().rss - before).toBeLessThan(100 * MiB);
  await expectAlive(client);
});

it('contract 01 §3.6: one byte every 29 s does not hold a slot', async () => {
  const clock = createTestClock();
  const target = await start({ clock });
  const { client } = await device(target);
  const slow = await Promise.all(Array.from({ length: 16 }, () => openRaw(target.port)));
  for (const raw of slow) pending.push(raw.destroy);
  await expect(openRaw(target.port)).rejects.toMatchObject({ status: 429, headers: { 'retry-after': '5' } });
  // The second byte of a frame that never ends.
  for (const raw of slow) raw.write(Buffer.from([0x81]));
  await clock.advanceAsync(29_000);
  await expectAlive(client);
  for (const raw of slow) raw.write(Buffer.from([0xfe]));
  await expect(openRaw(target.port)).rejects.toMatchObject({ status: 429 });
  await clock.advanceAsync(1_000);
  for (const raw of slow) {
    expect(await raw.envelope()).toMatchObject({ type: 'auth.fail', payload: { reason: 'Authentication timeout' } });
    expect(await raw.closing()).toEqual({ code: 1008, reason: 'Authentication timeout' });
  }
  // They do not answer the close: each is dropped two seconds later, and only then its slot is free.
  await vi.waitFor(async () => {
    const fresh = await Promise.allSettled(Array.from({ length: 16 }, () => openRaw(target.port)));
    for (const raw of fresh) if (raw.status === 'fulfilled') raw.value.destroy();
    expect(fresh.filter((raw) => raw.status === 'fulfilled')).toHaveLength(16);
  });
  await expectAlive(client);
});

it('contract 01 §3.1: pings, pongs and binary frames do not prolong the wait for the first frame', async () => {
  const clock = createTestClock();
  const target = await start({ clock });
  const raw = await openRaw(target.port);
  pending.push(raw.destroy);
  for (let step = 0; step < 3; step++) {
    for (const opcode of [OPCODE.pong, OPCODE.binary, OPCODE.ping]) raw.write(frame({ opcode, payload: 'here' }));
    expect((await raw.frame()).opcode).toBe(OPCODE.pong);
    await clock.advanceAsync(10_000);
  }
  expect((await raw.closing()).reason).toBe('Authentication timeout');
});

it('contract 01 §3.1: 256 waiting sockets in total, over many peers; authenticated ones do not count', async () => {
  const target = await start({ env: { RELAY_TRUST_PROXY_HEADERS: '1' } });
  const { client, token } = await device(target);
  const open = (index: number) =>
    openRaw(target.port, { headers: { 'x-forwarded-for': `198.51.100.${Math.floor(index / 16)}` } });
  const waiting = await Promise.all(Array.from({ length: 256 }, (_, index) => open(index)));
  for (const raw of waiting) pending.push(raw.destroy);
  await expect(openRaw(target.port, { headers: { 'x-forwarded-for': STRANGER } })).rejects.toMatchObject({
    status: 429,
  });
  await expectAlive(client);
  waiting[0]?.write(textFrame('system', 'auth', { session_token: token }));
  expect((await waiting[0]?.envelope())?.type).toBe('auth.ok');
  const next = await openRaw(target.port, { headers: { 'x-forwarded-for': STRANGER } });
  next.destroy();
});

it('contract 01 §3.4: a known id with a wrong proof does not disturb the living session', async () => {
  const target = await start();
  const victim = await device(target, { device: { device_id: 'victim' } });
  const almost = victim.token.slice(0, -1) + (victim.token.endsWith('0') ? '1' : '0');
  for (const payload of [
    { session_token: victim.prefix, device_id: 'victim' },
    { session_token: almost, refresh_token: victim.refreshToken.slice(1), device_id: 'victim' },
    { refresh_token: victim.refreshToken, device_id: 'thief' },
    { pairing_code: 'WRONG1', device_id: 'victim' },
    { session_token: victim.token.toUpperCase(), device_id: 'VICTIM' },
    { refresh_token: victim.token, device_id: 'victim' },
  ]) {
    const { client, frame } = await authenticate(target, payload);
    expect(frame.type).toBe('auth.fail');
    expect((await kept(client).closed()).code).toBe(1008);
    await expectAlive(victim.client);
  }
  expect(target.relay.sockets.count()).toBe(1);
  const rows = await (await target.fetch('/sessions', { headers: bearer(victim.token) })).json();
  expect(rows.sessions).toHaveLength(1);
  // The peer is blocked by now; the living socket goes on, and so does its token over HTTP.
  expect(target.relay.sockets.refusal('127.0.0.1')?.blocked).toBe(true);
  await expect(openRaw(target.port)).rejects.toMatchObject({ status: 429 });
  await expectAlive(victim.client);
  await registerCode(target, randomCode());
  expect((await authenticate(target, { session_token: victim.token })).frame.type).toBe('auth.ok');
});

it('contract 01 §3.4: of two upgrades that race for one code, first frame in the same packet, one gets in', async () => {
  for (let round = 0; round < 10; round++) {
    const target = await start();
    const code = randomCode();
    await registerCode(target, code);
    const bytes = Buffer.concat([
      request('GET', '/ws', handshakeHeaders()),
      textFrame('system', 'auth', { pairing_code: code }),
    ]);
    const racers = await Promise.all([connectRaw(target.port), connectRaw(target.port)]);
    for (const raw of racers) {
      pending.push(raw.destroy);
      raw.write(bytes);
    }
    const types = await Promise.all(
      racers.map(async (raw) => {
        expect((await raw.head()).status).toBe(101);
        return (await raw.envelope()).type;
      }),
    );
    expect(types.sort()).toEqual(['auth.fail', 'auth.ok']);
    expect(target.relay.sessions.count()).toBe(1);
  }
});

it('contract 02 §1.5: a session revoked during a call in flight closes at once and hears nothing of the call', async () => {
  let finish: () => void = () => {};
  const seen: string[] = [];
  const order: string[] = [];
  const probe: Channel = {
    async message(connection, { id }) {
      seen.push(id);
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      order.push(connection.isOpen ? 'answered while open' : 'answered after the end');
      connection.send('probe', 'answer', {}, id);
    },
    closed: () => void order.push('closed'),
  };
  const target = await start({ channels: { probe } });
  const victim = await device(target);
  const other = await device(target);
  victim.client.send('probe', 'call', {}, 'in-flight');
  victim.client.send('probe', 'call', {}, 'queued');
  await vi.waitFor(() => expect(seen).toEqual(['in-flight']));
  const response = await target.fetch(`/sessions/${victim.prefix}`, {
    method: 'DELETE',
    headers: bearer(other.token),
  });
  expect(response.status).toBe(200);
  expect(await victim.client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
  finish();
  await vi.waitFor(() => expect(order).toEqual(['closed', 'answered after the end']));
  await expectAlive(other.client);
  expect(seen).toEqual(['in-flight']);
  expect(victim.client.frames).toEqual([]);
  expect(target.log.join('\n')).not.toContain('failed');
});

it('contract 01 §11: a revocation that races an authentication wins', async () => {
  const target = await start();
  const victim = await device(target, { device: { device_id: 'racer' } });
  const { sessions } = target.relay;
  const session = sessions.list()[0];
  if (!session) throw new Error('no session');
  const original = sessions.resume.bind(sessions);
  // The session is ended while its change is being saved.
  vi.spyOn(sessions, 'resume').mockImplementation((...args) => {
    const { refreshToken, saved } = original(...args);
    return { refreshToken, saved: Promise.resolve(saved).then(() => sessions.revoke(session)) };
  });
  const { client, frame } = await authenticate(target, { session_token: victim.token });
  expect(frame).toMatchObject({ type: 'auth.fail', payload: { reason: 'Invalid session token' } });
  expect((await kept(client).closed()).code).toBe(1008);
  expect((await victim.client.closed()).code).toBe(4401);
  expect(target.relay.sockets.count()).toBe(0);
});

it('contract 01 §6.5: the same refresh token twice at once leaves one session and one socket', async () => {
  for (let round = 0; round < 5; round++) {
    const target = await start();
    const old = await device(target, { device: { device_id: 'twice' } });
    const payload = { refresh_token: old.refreshToken, device_id: 'twice' };
    const raws = await Promise.all([openRaw(target.port), openRaw(target.port)]);
    for (const raw of raws) {
      pending.push(raw.destroy);
      raw.write(textFrame('system', 'auth', payload));
    }
    const types = await Promise.all(raws.map(async (raw) => (await raw.envelope()).type));
    expect(types).toContain('auth.ok');
    expect(await old.client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
    await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
    expect(target.relay.sessions.count()).toBe(1);
  }
});

it('contract 01 §6.5: a replaced refresh token dies when its successor is used, or after ten minutes', async () => {
  const clock = createTestClock();
  const target = await start({ clock });
  const first = await device(target, { device: { device_id: 'd' } });
  const refresh = async (token: unknown) => {
    const { client, frame } = await authenticate(target, { refresh_token: token, device_id: 'd' });
    kept(client);
    return frame;
  };
  const second = await refresh(first.refreshToken);
  expect(second.type).toBe('auth.ok');
  expect((await refresh(second.payload.refresh_token)).type).toBe('auth.ok');
  expect((await refresh(first.refreshToken)).type).toBe('auth.fail');
  const other = await device(target, { device: { device_id: 'd' } });
  expect((await refresh(other.refreshToken)).type).toBe('auth.ok');
  await clock.advanceAsync(600_000);
  expect((await refresh(other.refreshToken)).type).toBe('auth.fail');
});

interface OperatorRoute {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string;
  /** What the operator gets, and what everybody else gets. */
  operator: number;
  stranger: number;
}

/** Every route that does more for the operator of the host than for others. */
const OPERATOR_ROUTES: OperatorRoute[] = [
  { method: 'POST', path: '/pairing/register', body: '{"code":"STOLEN"}', operator: 200, stranger: 403 },
  { method: 'POST', path: '/pairing/approve', body: '{"code":"STOLEN"}', operator: 200, stranger: 403 },
  { method: 'POST', path: '/pairing/mint', body: '{"host":"192.0.2.1"}', operator: 200, stranger: 403 },
  { method: 'POST', path: '/pairing', body: '{}', operator: 200, stranger: 202 },
  { method: 'GET', path: '/relay/security', operator: 200, stranger: 403 },
  {
    method: 'PATCH',
    path: '/relay/security',
    body: '{"allow_insecure_api_bearer":true}',
    operator: 200,
    stranger: 403,
  },
  { method: 'GET', path: '/relay/info', operator: 200, stranger: 403 },
  { method: 'GET', path: '/relay/update-check', operator: 200, stranger: 403 },
  { method: 'GET', path: '/sessions', headers: { 'x-svc-operator': '1' }, operator: 200, stranger: 401 },
  { method: 'DELETE', path: '/sessions/none', headers: { 'x-svc-operator': '1' }, operator: 404, stranger: 401 },
].map((route) => ({ headers: {}, body: '', ...route }));

const FOREIGN: [name: string, headers: Record<string, string>][] = [
  ['a foreign Origin', { origin: 'https://evil.example' }],
  ['the null Origin of a sandboxed frame', { origin: 'null' }],
  ['an Origin that only begins like loopback', { origin: 'http://127.0.0.1.evil.example' }],
  ['an Origin with loopback as its user', { origin: 'http://localhost@evil.example' }],
  ['an Origin of another address of 127/8', { origin: 'http://127.0.0.2' }],
  ['Sec-Fetch-Site cross-site', { 'sec-fetch-site': 'cross-site' }],
  ['Sec-Fetch-Site same-site', { 'sec-fetch-site': 'same-site' }],
  ['a rebound Host', { host: 'evil.example' }],
  ['a Host that only begins like loopback', { host: '127.0.0.1.evil.example' }],
  ['a Host of the LAN', { host: '192.168.1.2:8767' }],
  ['a Host of another address of 127/8', { host: '127.0.0.2' }],
  ['an empty Host', { host: '' }],
  ['Forwarded', { forwarded: 'for=127.0.0.1' }],
  ['X-Forwarded-For', { 'x-forwarded-for': '127.0.0.1' }],
  ['X-Forwarded-Host', { 'x-forwarded-host': 'localhost' }],
  ['X-Forwarded-Proto', { 'x-forwarded-proto': 'http' }],
  ['X-Real-IP', { 'x-real-ip': '127.0.0.1' }],
  ['Via', { via: '1.1 localhost' }],
  ['CF-Connecting-IP', { 'cf-connecting-ip': '127.0.0.1' }],
  ['True-Client-IP', { 'true-client-ip': '127.0.0.1' }],
  ['Tailscale-User-Login', { 'tailscale-user-login': 'me@example.com' }],
  ['an empty proxy header', { 'x-forwarded-for': '' }],
  ['a proxy header in capitals', { 'X-FORWARDED-FOR': '127.0.0.1' }],
];

const send = (target: BuiltTarget, { method, path, body, ...route }: OperatorRoute, headers: Record<string, string>) =>
  exchange(
    target.port,
    request(method, path, { 'content-length': String(body.length), ...route.headers, ...headers }, body),
    method,
  );

it.each(OPERATOR_ROUTES)('contract 01 §1.3: $method $path is for the operator', async (route) => {
  const target = await start();
  const own: Record<string, string>[] = [
    {},
    { host: 'localhost:8767' },
    { host: '[::1]:1' },
    { host: 'LOCALHOST' },
    { origin: 'http://localhost:9', 'sec-fetch-site': 'same-origin' },
    { origin: 'http://[::1]', 'sec-fetch-site': 'none' },
  ];
  for (const headers of own) {
    target.relay.limiter.clear();
    expect({ headers, status: (await send(target, route, headers)).status }).toEqual({
      headers,
      status: route.operator,
    });
  }
  // A wrong bearer is never downgraded to loopback trust (§1.1): what is open to anybody stays just that.
  const wrongBearer = await send(target, route, { authorization: 'Bearer nonsense' });
  expect(wrongBearer.status).toBe(route.stranger === 202 ? 202 : 401);
});

it.each(FOREIGN)('contract 01 §1.3: %s makes a caller a stranger on every operator route', async (_name, headers) => {
  const target = await start();
  const victim = await device(target);
  const counted = target.log.length;
  for (const route of OPERATOR_ROUTES) {
    target.relay.limiter.clear();
    const path = route.method === 'DELETE' ? `/sessions/${victim.prefix}` : route.path;
    const answer = await send(target, { ...route, path }, headers);
    expect({ path, status: answer.status }).toEqual({ path, status: route.stranger });
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    expect(JSON.parse(answer.body)).not.toHaveProperty('code');
    if (route.stranger === 403) {
      const warnings = target.log.slice(counted).filter((line) => line.includes('[WARNING]') && line.includes(path));
      expect(warnings.length, `a warning for ${path}`).toBeGreaterThan(0);
    }
  }
  expect(target.relay.security.allowInsecureApiBearer).toBe(false);
  expect((await authenticate(target, { pairing_code: 'STOLEN' })).frame.type).toBe('auth.fail');
  await expectAlive(victim.client);
});

it('contract 01 §1: a browser may ask what it likes before: no CORS on OPTIONS', async () => {
  const target = await start();
  for (const { path } of OPERATOR_ROUTES) {
    const headers = { origin: 'https://evil.example', 'access-control-request-method': 'POST' };
    const answer = await exchange(target.port, request('OPTIONS', path, headers));
    expect(answer.status).toBe(405);
    expect(answer.headers.allow).toMatch(/[A-Z]/);
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
  }
});

const TRICKS = [
  '/%70airing/mint',
  '/pairing%2fmint',
  '/pairing%2Fmint',
  '/pairing/%6dint',
  '//pairing/mint',
  '///pairing/mint',
  '/pairing//mint',
  '/pairing/mint/',
  '/pairing/mint//',
  '/./pairing/mint',
  '/pairing/./mint',
  '/x/../pairing/mint',
  '/%2e/pairing/mint',
  '/x/%2e%2e/pairing/mint',
  '/health/../pairing/mint',
  '/sessions/..%2fpairing%2fmint',
  '/sessions/..%2frelay%2fsecurity',
  '/sessions/../relay/security',
  '/health;/../relay/security',
  '/pairing;/mint',
  '/pairing/mint;x=1',
  '/;/pairing/mint',
  '/PAIRING/MINT',
  '/Pairing/Mint',
  '/pairing/mint%00',
  '/pairing/mint%20',
  '/pairing/mint.json',
  '/pairing\\mint',
  '\\pairing\\mint',
  '/\\pairing/mint',
  '/relay/security?x=/health',
  '/relay/security#/health',
  '/relay\t/security',
  '/relay/security\0',
  '/relay/security/',
  '/RELAY/SECURITY',
  '//127.0.0.1/relay/security',
  'http://127.0.0.1/relay/security',
  'http://localhost/pairing/mint',
  'HTTP://LOCALHOST/pairing/mint',
  'https://127.0.0.1/relay/security',
  'http://[::1]/pairing/mint',
  'ws://127.0.0.1/pairing/mint',
  'file:///pairing/mint',
  'relay/security',
  '?/pairing/mint',
  '*',
  '127.0.0.1:80',
  '%',
  '/%',
  '/%zz',
  '/%ff/%fe',
  '/sessions/%',
  `/${'a/'.repeat(3000)}`,
];

it.each(['GET', 'POST', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'CONNECT', 'pOST'])(
  'contract 01 §1.3: no trick with the path of a %s gets a stranger past a guard',
  async (method) => {
    const target = await start();
    const victim = await device(target);
    const body = '{"allow_insecure_api_bearer":true,"code":"STOLEN","host":"192.0.2.1"}';
    for (const path of TRICKS) {
      const headers = {
        'x-forwarded-for': STRANGER,
        'x-svc-operator': '1',
        'x-original-url': '/relay/security',
        'x-rewrite-url': '/relay/security',
        'x-http-method-override': 'PATCH',
        'content-length': String(body.length),
        connection: 'close',
      };
      const answer = await exchange(target.port, request(method, path, headers, body), method).catch(() => undefined);
      // Only a CONNECT may be dropped without a word.
      if (method !== 'CONNECT') expect(answer, path).toBeDefined();
      if (answer)
        expect([400, 401, 403, 404, 405, 426], `${method} ${path}: ${answer.status}`).toContain(answer.status);
    }
    expect(target.relay.security.allowInsecureApiBearer).toBe(false);
    expect(await target.relay.codes.consume('STOLEN')).toBeUndefined();
    expect(target.log.join('\n')).not.toMatch(/request failed|minted/);
    expect(target.relay.sessions.count()).toBe(1);
    await expectAlive(victim.client);
  },
);

it('contract 01 §1.2: a token in a query, a cookie or the header of the ingress is no credential', async () => {
  const target = await start();
  const { token, prefix, client } = await device(target);
  const query = `?token=${token}&session_token=${token}&access_token=${token}&authorization=Bearer%20${token}`;
  const headers = {
    cookie: `session_token=${token}; svc_session=${token}; Authorization=Bearer ${token}`,
    'x-svc-relay-session': token,
    'x-forwarded-for': STRANGER,
  };
  for (const [method, path] of [
    ['GET', '/sessions'],
    ['DELETE', `/sessions/${prefix}`],
    ['PATCH', `/sessions/${prefix}`],
    ['POST', '/clipboard/inbox'],
  ] as const) {
    expect((await exchange(target.port, request(method, path + query, headers))).status, path).toBe(401);
  }
  for (const path of ['/relay/info', '/relay/update-check']) {
    expect((await exchange(target.port, request('GET', path + query, headers))).status, path).toBe(403);
  }
  const raw = await openRaw(target.port, { path: `/ws${query}`, headers: { ...headers, ...bearer(token) } });
  pending.push(raw.destroy);
  raw.write(textFrame('system', 'ping'));
  expect(await raw.envelope()).toMatchObject({ payload: { reason: 'First message must be system/auth' } });
  await expectAlive(client);
  expect(target.log.join('\n')).not.toContain(token);
});

it('contract 02 §1.1: a flood of protocol pings by a client that never reads ends its socket, not the memory', async () => {
  const target = await start();
  const honest = await device(target);
  const { token } = await device(target);
  const raw = await openAuthenticated(target.port, { session_token: token });
  pending.push(raw.destroy);
  const before = target.relay.sockets.count();
  raw.socket.pause();
  const one = frame({ opcode: OPCODE.ping, payload: 'x'.repeat(125) });
  const flood = Buffer.concat(Array.from({ length: 8000 }, () => one));
  const memory = process.memoryUsage().rss;
  let sent = 0;
  while (target.relay.sockets.count() === before && sent < 200 * MiB) {
    sent += flood.length;
    await new Promise<void>((resolve) => raw.socket.write(flood, () => resolve()));
  }
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(before - 1));
  expect(process.memoryUsage().rss - memory).toBeLessThan(600 * MiB);
  await expectAlive(honest.client);
});

it('contract 02 §1.1: a flood of system pings whose answers nobody reads ends with 1013', async () => {
  const target = await start();
  const honest = await device(target);
  const { client } = await device(target);
  stopTimers();
  client.socket.pause();
  const ts = 'x'.repeat(3 * MiB);
  // The answers must fill the system's own buffers first.
  for (let count = 0; count < 40; count++) client.send('system', 'ping', { ts });
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
  client.socket.resume();
  expect(await client.closed()).toEqual({ code: 1013, reason: 'slow consumer' });
  await expectAlive(honest.client);
});

it('contract 02 §1.1: a slow consumer is closed with 1013 at 64 MiB, and not before', async () => {
  let connection: Connection | undefined;
  const flood: Channel = {
    message(from) {
      connection = from;
    },
  };
  const target = await start({ channels: { flood } });
  const honest = await device(target);
  const { client } = await device(target);
  client.send('flood', 'go');
  await vi.waitFor(() => expect(connection).toBeDefined());
  stopTimers();
  client.socket.pause();
  const data = 'x'.repeat(MiB);
  let most = 0;
  while (connection?.isOpen) {
    most = connection.unsent;
    connection.send('flood', 'data', { data });
  }
  // What it had when the next megabyte was still allowed.
  expect(most).toBeGreaterThan(62 * MiB);
  expect(most).toBeLessThanOrEqual(64 * MiB);
  client.socket.resume();
  expect(await client.closed()).toEqual({ code: 1013, reason: 'slow consumer' });
  expect(target.relay.sockets.count()).toBe(1);
  await expectAlive(honest.client);
});

it.each([
  ['/pairing/register', 64 * 1024],
  ['/pairing/approve', 64 * 1024],
  ['/pairing/mint', 64 * 1024],
])('contract 01 §1: a body over the limit of %s: 413 and the end of the connection', async (path, limit) => {
  const target = await start();
  const announced = await connectRaw(target.port);
  pending.push(announced.destroy);
  announced.write(request('POST', path, { 'content-length': String(limit + 1) }));
  const first = await announced.response();
  expect(first.status).toBe(413);
  expect(first.headers.connection).toBe('close');
  expect(JSON.parse(first.body).ok).toBe(false);
  await announced.ended();

  const chunked = await connectRaw(target.port);
  pending.push(chunked.destroy);
  chunked.write(request('POST', path, { 'transfer-encoding': 'chunked' }));
  const chunk = Buffer.alloc(16 * 1024, ' ');
  for (let sent = 0; sent <= limit; sent += chunk.length) {
    chunked.write(Buffer.concat([Buffer.from('4000\r\n'), chunk, Buffer.from('\r\n')]));
  }
  expect((await chunked.response()).status).toBe(413);
  await chunked.ended();

  const exact = `{"code":"FITS01","host":"192.0.2.1"${' '.repeat(limit - 36)}}`;
  expect(exact).toHaveLength(limit);
  const fits = request('POST', path, { 'content-length': String(limit) }, exact);
  expect((await exchange(target.port, fits)).status).toBe(200);
});

it('contract 01 §1: lies about the length of a body get 400 and never reach the next request', async () => {
  const target = await start();
  const smuggled = request(
    'PATCH',
    '/relay/security',
    { 'content-length': '34' },
    '{"allow_insecure_api_bearer":true}',
  );
  const lies: Buffer[] = [
    request('POST', '/pairing/register', { 'transfer-encoding': 'chunked' }, 'zz\r\nhello\r\n0\r\n\r\n'),
    request('POST', '/pairing/register', { 'transfer-encoding': 'chunked' }, '-1\r\n\r\n'),
    request('POST', '/pairing/register', { 'transfer-encoding': 'chunked' }, '2\r\n{}{}\r\n0\r\n\r\n'),
    request('POST', '/pairing/register', { 'transfer-encoding': 'chunked' }, 'ffffffffffffffffff\r\n{}'),
    request('POST', '/pairing/register', { 'transfer-encoding': 'chunked, gzip' }, '0\r\n\r\n'),
    request('POST', '/pairing/register', { 'transfer-encoding': 'xchunked' }, '0\r\n\r\n'),
    request('POST', '/pairing/register', { 'content-length': '2, 3' }, '{}'),
    request('POST', '/pairing/register', { 'content-length': ['2', '3'] }, '{}'),
    request('POST', '/pairing/register', { 'content-length': '-1' }, '{}'),
    request('POST', '/pairing/register', { 'content-length': '+2' }, '{}'),
    request('POST', '/pairing/register', { 'content-length': '0x2' }, '{}'),
    request('POST', '/pairing/register', { 'content-length': '2', 'transfer-encoding': 'chunked' }, smuggled),
  ];
  for (const bytes of lies) {
    const answer = await exchange(target.port, bytes);
    expect({ bytes: String(bytes), status: answer.status }).toMatchObject({ status: 400 });
    expect(JSON.parse(answer.body)).toMatchObject({ ok: false });
    expect(answer.headers['x-content-type-options']).toBe('nosniff');
  }
  expect(target.relay.security.allowInsecureApiBearer).toBe(false);
});

it('contract 01 §1: a body that does not come within 60 s: 408 and the end of the connection', async () => {
  stopTimers();
  const target = await start({ clock: createTestClock() });
  const before = vi.getTimerCount();
  const raw = await connectRaw(target.port);
  pending.push(raw.destroy);
  raw.write(request('POST', '/pairing/register', { 'content-length': '20' }, '{"code":'));
  await vi.waitFor(() => expect(vi.getTimerCount()).toBeGreaterThan(before));
  vi.advanceTimersByTime(60_000);
  vi.useRealTimers();
  const { status, headers, body } = await raw.response();
  expect(status).toBe(408);
  expect(headers.connection).toBe('close');
  expect(JSON.parse(body).ok).toBe(false);
  await raw.ended();
});

it('contract 01 §1: 20 s for a head, 60 s for a body, 75 s idle are what the server is set to', async () => {
  const target = await start();
  const seen: Server[] = [];
  const listen = (message: unknown) => {
    const { server, request } = message as { server: Server; request: { url: string } };
    if (request.url === '/health?marked') seen.push(server);
  };
  subscribe('http.server.request.start', listen);
  pending.push(() => unsubscribe('http.server.request.start', listen));
  await exchange(target.port, request('GET', '/health?marked', { connection: 'close' }));
  const server = seen[0];
  expect(server?.headersTimeout).toBe(20_000);
  expect(server?.requestTimeout).toBe(80_000);
  expect(server?.keepAliveTimeout).toBe(75_000);
});
