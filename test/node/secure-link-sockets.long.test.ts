import { once } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { TIMED } from '../support/limits.ts';
import { frame, OPCODE, textFrame } from '../support/raw-socket.ts';
import { pair, registerCode } from '../support/relay.ts';
import { AUTHORITY, startSecureLink, type TestSecureLink } from '../support/secure-link.ts';

const MiB = 1024 * 1024;
const LIMITS = { maxMessage: 16 * MiB, handshake: 2_000, ping: 30_000, idle: 45_000, check: 1_000 };

/** A socket through the proxy, and the dashboard's end of it. */
async function open(link: TestSecureLink, path = '/dashboard/api/ws', protocols: string[] = [], port = link.port) {
  const client = new WebSocket(`wss://127.0.0.1:${port}${path}`, protocols, {
    ...link.secure,
    perMessageDeflate: true,
  });
  onTestFinished(() => client.terminate());
  client.on('error', () => {});
  const [[upstream]] = await Promise.all([once(link.dashboard.server, 'opened'), once(client, 'open')]);
  return { client, upstream: upstream as WebSocket };
}

const closed = async (socket: WebSocket) => {
  const [code, reason] = await once(socket, 'close');
  return { code, reason: String(reason) };
};

describe('/relay/ws (contract 08 §4.5)', () => {
  it('is the channel socket of the relay, for a client without extensions', async () => {
    const link = await startSecureLink();
    const { token } = await pair(link.target);
    const socket = await link.open('/relay/ws?token=x', {
      'x-svc-relay-session': 'x',
      origin: 'https://evil.test',
      host: 'evil',
    });
    expect(socket.upgrade.headers['sec-websocket-extensions']).toBeUndefined();
    socket.write(textFrame('system', 'auth', { session_token: token }));
    const { type, payload } = await socket.envelope();
    expect([type, payload.session_token]).toEqual(['auth.ok', token]);
    socket.destroy();
  });

  it('limits failed attempts by the TLS peer, whatever headers say, and Reach apart', async () => {
    const link = await startSecureLink();
    const attempt = async (headers: Record<string, string>) => {
      const socket = await link.open('/relay/ws', headers);
      socket.write(textFrame('system', 'auth', { pairing_code: 'WRONG1' }));
      const { type } = await socket.envelope();
      socket.destroy();
      return type;
    };
    let last: unknown;
    for (let count = 0; count < 40 && last === undefined; count++) {
      const forged = { 'x-forwarded-for': `10.0.0.${count}`, origin: `https://o${count}.test` };
      last = await attempt(forged).then(
        () => undefined,
        (error: { status: number }) => error.status,
      );
    }
    expect(last).toBe(429);
  });

  it('pairs a device, whose transport is known to be safe', async () => {
    const link = await startSecureLink();
    await registerCode(link.target, 'ABC123');
    const socket = await link.open('/relay/ws');
    socket.write(textFrame('system', 'auth', { pairing_code: 'ABC123', device_id: 'd', device_name: 'Phone' }));
    const { type, payload } = await socket.envelope();
    expect([type, payload.transport_hint]).toEqual(['auth.ok', 'wss']);
    socket.destroy();
  });
});

describe('/dashboard sockets (contract 08 §4.5)', () => {
  it('reach the dashboard with path, query and the headers of a request', async () => {
    const link = await startSecureLink();
    const raw = await link.open('/dashboard/api/ws?ticket=a%2Fb&profile="x"|', { constructor: 'as sent' });
    raw.destroy();
    const first = link.dashboard.upgrades.shift();
    expect(first?.url).toBe('/api/ws?ticket=a%2Fb&profile="x"|');
    expect(first?.headers.constructor).toBe('as sent');
    const { client, upstream } = await open(link, '/dashboard/api/ws?ticket=1');
    const [sent] = link.dashboard.upgrades;
    expect(sent?.headers).toMatchObject({
      host: `127.0.0.1:${link.dashboard.port}`,
      'x-forwarded-host': AUTHORITY,
      'x-forwarded-prefix': '/dashboard',
      'x-forwarded-for': '127.0.0.1',
    });
    expect(sent?.headers['sec-websocket-extensions']).toBeUndefined();
    expect(client.extensions).toBe('');
    client.send('text');
    expect((await once(upstream, 'message'))[1]).toBe(false);
    client.send(Buffer.from([1, 2]));
    const [bytes, isBinary] = await once(upstream, 'message');
    expect([[...bytes], isBinary]).toEqual([[1, 2], true]);
    upstream.send('back');
    expect(String((await once(client, 'message'))[0])).toBe('back');
  });

  it.each<[string[], string | false, string]>([
    [['a', 'b'], 'b', 'b'],
    [[], false, ''],
  ])('offered %j, the dashboard selects %s', async (offered, selected, protocol) => {
    const link = await startSecureLink();
    link.dashboard.selects = selected;
    const { client } = await open(link, undefined, offered);
    expect(client.protocol).toBe(protocol);
  });

  it('passes on that none of the offered subprotocols was selected', async () => {
    const link = await startSecureLink();
    link.dashboard.selects = false;
    const socket = await link.open('/dashboard/ws', { 'sec-websocket-protocol': 'a, b' });
    expect(socket.upgrade.headers['sec-websocket-protocol']).toBeUndefined();
    socket.destroy();
  });

  it('never echoes a ticket', async () => {
    const link = await startSecureLink();
    const offered = { 'sec-websocket-protocol': 'svc-gateway-ticket.abc' };
    link.dashboard.selects = 'svc-gateway-ticket.abc';
    await expect(link.open('/dashboard/ws', offered)).rejects.toMatchObject({ status: 502 });
    await expect(link.open('/dashboard/ws', { 'sec-websocket-protocol': 'a,,a' })).rejects.toMatchObject({
      status: 400,
    });
  });

  it('502 for a dashboard that refuses, or does not answer', async () => {
    const link = await startSecureLink({ limits: { sockets: { ...LIMITS, handshake: 300 } } });
    link.dashboard.server.removeAllListeners('upgrade');
    link.dashboard.server.on('upgrade', (req, socket) => {
      if (req.url === '/no') socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n');
    });
    await expect(link.open('/dashboard/no')).rejects.toMatchObject({ status: 502 });
    await expect(link.open('/dashboard/silent')).rejects.toMatchObject({ status: 502 });
  });

  it.each<[number | undefined, string, number]>([
    [1000, 'bye', 1000],
    [4321, 'reason', 4321],
    [1008, '', 1008],
    [undefined, '', 1000],
  ])('a close with %s %s is passed on as %i, both ways', async (code, reason, passed) => {
    const link = await startSecureLink();
    for (const isClient of [true, false]) {
      const { client, upstream } = await open(link);
      const [from, to] = isClient ? [client, upstream] : [upstream, client];
      from.close(code, reason);
      expect(await closed(to)).toEqual({ code: passed, reason });
    }
  });

  it('tells a dashboard that breaks off from a client that goes', async () => {
    const link = await startSecureLink();
    const first = await open(link);
    first.upstream.terminate();
    expect(await closed(first.client)).toEqual({ code: 1011, reason: 'upstream unavailable' });
    const second = await open(link);
    second.client.terminate();
    expect((await closed(second.upstream)).code).toBe(1000);
  });

  it('1009 for a message over the limit, 1002 for a broken frame', async () => {
    const link = await startSecureLink({ limits: { sockets: { ...LIMITS, maxMessage: MiB } } });
    const { client, upstream } = await open(link);
    client.send(Buffer.alloc(MiB + 1));
    expect((await Promise.all([closed(client), closed(upstream)])).map(({ code }) => code)).toEqual([1009, 1009]);
    const raw = await link.open('/dashboard/ws');
    raw.write(frame({ masked: false, payload: 'x' }));
    expect((await raw.closing()).code).toBe(1002);
    raw.destroy();
  });

  it('reads one side no faster than the other takes it', TIMED, async () => {
    const link = await startSecureLink();
    const opened = once(link.dashboard.server, 'opened');
    const raw = await link.open('/dashboard/ws');
    const [upstream] = (await opened) as [WebSocket];
    raw.socket.pause();
    let sent = 0;
    while (upstream.bufferedAmount < 8 * MiB && sent < 64 * MiB) {
      upstream.send(Buffer.alloc(256 * 1024));
      sent += 256 * 1024;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(sent).toBeLessThan(64 * MiB);
    raw.socket.resume();
    await expect.poll(() => upstream.bufferedAmount, { timeout: 20_000 }).toBe(0);
    raw.destroy();
  });

  it('ends a side that answers no ping', async () => {
    const link = await startSecureLink({ limits: { sockets: { ...LIMITS, ping: 100, idle: 1_500, check: 50 } } });
    const raw = await link.open('/dashboard/ws');
    const { opcode } = await raw.frame();
    expect(opcode).toBe(OPCODE.ping);
    await raw.ended();
  });

  it.each(['cut', 'reset', 'stall'] as const)(
    'frees both sides of a client behind a network that fails (%s)',
    async (fault) => {
      const link = await startSecureLink({ limits: { sockets: { ...LIMITS, ping: 100, idle: 400, check: 50 } } });
      const flaky = await startFlakyProxy({ port: link.port, seed: 7, faults: [fault], after: [8_192, 65_536] });
      onTestFinished(flaky.close);
      const { client, upstream } = await open(link, undefined, [], flaky.port);
      const ended = once(upstream, 'close');
      const timer = setInterval(() => client.readyState === WebSocket.OPEN && client.send('x'.repeat(1_000)), 5);
      await ended;
      clearInterval(timer);
    },
  );

  it('closes with 1001 when the listener stops', async () => {
    const link = await startSecureLink();
    const { client, upstream } = await open(link);
    const ends = Promise.all([closed(client), closed(upstream)]);
    await link.listener.close();
    expect((await ends).map(({ code }) => code)).toEqual([1001, 1001]);
  });
});
