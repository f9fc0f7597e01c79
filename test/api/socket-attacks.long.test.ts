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

/** Stops real timers, among them the two seconds that a closed client has to read on. */
function stopTimers(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  pending.push(() => vi.useRealTimers());
}

async function expectAlive(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  expect((await client.next({ id })).type).toBe('pong');
}

it('contract 01 §3.1: a handshake or a first frame that announces a huge length allocates nothing', async () => {
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
  // They do not answer the close, so each is dropped two seconds later and frees its slot only then.
  await vi.waitFor(async () => {
    const fresh = await Promise.allSettled(Array.from({ length: 16 }, () => openRaw(target.port)));
    for (const raw of fresh) if (raw.status === 'fulfilled') raw.value.destroy();
    expect(fresh.filter((raw) => raw.status === 'fulfilled')).toHaveLength(16);
  });
  await expectAlive(client);
});

it('contract 01 §3.1: pings, pongs and binary frames do not extend the time for the first frame', async () => {
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

it('contract 01 §3.1: 256 unauthenticated sockets in total over many peers; authenticated ones do not count', async () => {
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

it('contract 01 §3.4: of two upgrades that race for one code, with the first frame in the same packet, one gets in', async () => {
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

it('contract 02 §1.5: a session revoked during a call closes at once and gets no answer', async () => {
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
  // The session is revoked while its change is being saved.
  vi.spyOn(sessions, 'resume').mockImplementation((...args) => {
    const { saved } = original(...args);
    return {
      saved: Promise.resolve(saved)
        .then(() => sessions.revoke(session))
        .then(() => undefined),
    };
  });
  const { client, frame } = await authenticate(target, { session_token: victim.token });
  expect(frame).toMatchObject({ type: 'auth.fail', payload: { reason: expect.stringMatching(/^session ended on /) } });
  expect((await kept(client).closed()).code).toBe(1008);
  expect((await victim.client.closed()).code).toBe(4401);
  expect(target.relay.sockets.count()).toBe(0);
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
  let peak = 0;
  while (connection?.isOpen) {
    peak = connection.unsent;
    connection.send('flood', 'data', { data });
  }
  // Unsent bytes at the last megabyte that was still accepted.
  expect(peak).toBeGreaterThan(62 * MiB);
  expect(peak).toBeLessThanOrEqual(64 * MiB);
  client.socket.resume();
  expect(await client.closed()).toEqual({ code: 1013, reason: 'slow consumer' });
  expect(target.relay.sockets.count()).toBe(1);
  await expectAlive(honest.client);
});

it.each([
  ['/pairing/register', 64 * 1024],
  ['/pairing/approve', 64 * 1024],
  ['/pairing/mint', 64 * 1024],
])('contract 01 §1: a body over the limit of %s gets 413 and the end of the connection', async (path, limit) => {
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

it('contract 01 §1: a false body length gets 400 and never becomes the next request', async () => {
  const target = await start();
  const smuggled = request(
    'PATCH',
    '/relay/security',
    { 'content-length': '34' },
    '{"allow_insecure_api_bearer":true}',
  );
  const forged: Buffer[] = [
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
  for (const bytes of forged) {
    const answer = await exchange(target.port, bytes);
    expect({ bytes: String(bytes), status: answer.status }).toMatchObject({ status: 400 });
    expect(JSON.parse(answer.body)).toMatchObject({ ok: false });
    expect(answer.headers['x-content-type-options']).toBe('nosniff');
  }
  expect(target.relay.security.allowInsecureApiBearer).toBe(false);
});

it('contract 01 §1: a body that takes over 60 s gets 408 and the end of the connection', async () => {
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

it('contract 01 §1: the server allows 20 s for a head, 60 s for a body and 75 s idle', async () => {
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
