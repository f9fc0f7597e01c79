import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import type { PluginLimits } from '../../cli/dashboard/plugin.ts';
import { closedPort } from '../support/closed-port.ts';
import { startDashboard, startRecorder, type TestDashboard, TRANSPORT } from '../support/dashboard.ts';
import { TIMED } from '../support/limits.ts';
import { connectRaw, exchange, frame, OPCODE } from '../support/raw-socket.ts';

const SESSION = { 'x-svc-relay-session': 'a-session' };
const ID = 's'.repeat(20);
const HANDSHAKE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
};

/** Sends an upgrade and returns the plain response. */
async function upgrade({ port }: TestDashboard, path: string, headers: Record<string, string> = {}) {
  const lines = Object.entries({ host: 'dashboard.test', ...HANDSHAKE, ...headers }).map(
    ([name, value]) => `${name}: ${value}`,
  );
  const target = `${TRANSPORT}${path}`;
  const { status, body } = await exchange(
    port,
    Buffer.from(`GET ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`),
    'GET',
  );
  return { status, body };
}

/** A socket through the ingress, and the recorder's end of it. */
async function open(
  path = '/ws?ticket=good',
  {
    limits,
    headers = {},
    protocols = [],
  }: { limits?: PluginLimits; headers?: Record<string, string>; protocols?: string[] } = {},
) {
  const recorder = await startRecorder();
  const dashboard = await startDashboard({ relayPort: recorder.port, limits });
  const client = dial(dashboard, path, headers, protocols);
  const [[relay]] = await Promise.all([once(recorder.server, 'opened'), once(client, 'open')]);
  return { recorder, dashboard, client, relay: relay as WebSocket };
}

function dial({ port }: TestDashboard, path: string, headers: Record<string, string> = {}, protocols: string[] = []) {
  const client = new WebSocket(`ws://127.0.0.1:${port}${TRANSPORT}${path}`, protocols, {
    headers,
    perMessageDeflate: false,
  });
  client.on('error', () => {});
  onTestFinished(() => client.terminate());
  return client;
}

/** Code and reason with which a socket closes. */
const closed = async (socket: WebSocket) => {
  const [code, reason] = await once(socket, 'close');
  return { code, reason: String(reason) };
};

describe('refusals of an upgrade, in their order (contract 07 §4.3)', () => {
  it('each comes before the next, as plain HTTP', async () => {
    const recorder = await startRecorder();
    const dashboard = await startDashboard({ relayPort: recorder.port });
    const { host, asked } = dashboard;
    const bad = `/voice/output/short?ticket=`;
    host.isPluginEnabled = () => false;
    host.checkHostOrigin = () => false;
    expect((await upgrade(dashboard, `${bad}good`)).status).toBe(403);
    expect(asked.splice(0)).toEqual(['isPluginEnabled']);
    host.isPluginEnabled = async () => true;
    expect((await upgrade(dashboard, `${bad}good`)).status).toBe(403);
    expect(asked.splice(0)).toEqual(['isPluginEnabled', 'checkHostOrigin']);
    host.checkHostOrigin = () => true;
    expect((await upgrade(dashboard, `${bad}bad`)).status).toBe(403);
    expect(asked.splice(0)).toEqual(['isPluginEnabled', 'checkHostOrigin', 'consumeWsTicket']);
    expect((await upgrade(dashboard, `${bad}good`)).status).toBe(404);
    expect((await upgrade(dashboard, `/voice/output/${ID}?ticket=good`)).status).toBe(401);
    const long = { 'x-svc-relay-session': 'x'.repeat(8193) };
    expect((await upgrade(dashboard, `/voice/output/${ID}?ticket=good`, long)).status).toBe(400);
    expect(recorder.upgrades).toEqual([]);
  });

  it.each(['isPluginEnabled', 'checkHostOrigin', 'consumeWsTicket'] as const)('503 when %s throws', async (name) => {
    const recorder = await startRecorder();
    const dashboard = await startDashboard({ relayPort: recorder.port });
    dashboard.host[name] = () => {
      throw new Error('secret');
    };
    const { status, body } = await upgrade(dashboard, '/ws?ticket=good');
    expect(status).toBe(503);
    expect(body).not.toContain('secret');
    expect(recorder.upgrades).toEqual([]);
  });

  it.each(['isPluginEnabled', 'consumeWsTicket'] as const)('503 when %s hangs', async (name) => {
    const dashboard = await startDashboard({ relayPort: 1, limits: { decision: 50, sockets: { maxSockets: 1 } } });
    dashboard.host[name] = () => new Promise<never>(() => {});
    for (let count = 0; count < 3; count++) {
      const { status, body } = await upgrade(dashboard, '/ws?ticket=good');
      expect([status, body]).toEqual([503, expect.stringContaining('cannot admit')]);
    }
  });

  it('403 when checkHostOrigin answers with a promise of false', async () => {
    const recorder = await startRecorder();
    const dashboard = await startDashboard({ relayPort: recorder.port });
    dashboard.host.checkHostOrigin = (async () => false) as unknown as () => boolean;
    expect((await upgrade(dashboard, '/ws?ticket=good')).status).toBe(403);
    expect(dashboard.asked).not.toContain('consumeWsTicket');
  });

  it('502 when the relay is not there', async () => {
    const port = await closedPort();
    const dashboard = await startDashboard({ relayPort: port });
    const { status, body } = await upgrade(dashboard, '/ws?ticket=good');
    expect([status, JSON.parse(body)]).toEqual([
      502,
      { detail: `relay unreachable at 127.0.0.1:${port}: connection refused` },
    ]);
  });

  it('a path that is no socket costs no ticket', async () => {
    const recorder = await startRecorder();
    const dashboard = await startDashboard({ relayPort: recorder.port });
    for (const path of [
      '',
      '/',
      '/ws/',
      '/health',
      '/bridge',
      '/voice/other/x',
      '/../ws',
      '/%77s',
      '/voice/output/a/b',
    ]) {
      expect((await upgrade(dashboard, `${path}?ticket=good`)).status).toBe(404);
    }
    expect(dashboard.asked).not.toContain('consumeWsTicket');
    expect(recorder.upgrades).toEqual([]);
  });

  it.each([[{ upgrade: 'h2c' }], [{ 'sec-websocket-version': '8' }], [{ 'sec-websocket-key': 'x' }]])(
    'a broken handshake costs no ticket: %j',
    async (headers) => {
      const dashboard = await startDashboard({ relayPort: 1 });
      expect((await upgrade(dashboard, '/ws?ticket=good', headers)).status).toBe(400);
      expect(dashboard.asked).not.toContain('consumeWsTicket');
    },
  );

  it("passes on the relay's own refusal", async () => {
    const recorder = await startRecorder();
    recorder.server.removeAllListeners('upgrade');
    recorder.server.on('upgrade', (_req, socket) =>
      socket.end(
        'HTTP/1.1 429 Too Many\r\nretry-after: 7\r\nset-cookie: a=b\r\ncontent-length: 12\r\n\r\n{"ok":false}',
      ),
    );
    const { port } = await startDashboard({ relayPort: recorder.port });
    const lines = Object.entries(HANDSHAKE).map(([name, value]) => `${name}: ${value}`);
    const asked = `GET ${TRANSPORT}/ws?ticket=good HTTP/1.1\r\nhost: d\r\n${lines.join('\r\n')}\r\n\r\n`;
    const answer = await exchange(port, Buffer.from(asked), 'GET');
    expect(answer).toMatchObject({ status: 429, body: '{"ok":false}' });
    expect(answer.headers['retry-after']).toBe('7');
    expect(answer.headers).not.toHaveProperty('set-cookie');
  });

  it('has a bound on sockets', async () => {
    const { dashboard } = await open(undefined, { limits: { sockets: { maxSockets: 1 } } });
    expect((await upgrade(dashboard, '/ws?ticket=good')).status).toBe(503);
  });
});

describe('forwarded sockets (contract 07 §4.3)', () => {
  it('carry the marker, and neither query, cookies, origin nor session to /ws', async () => {
    const headers = { ...SESSION, cookie: 'user=1', origin: 'http://dashboard.test', authorization: 'Bearer d' };
    const { recorder } = await open('/ws?ticket=good&token=secret', { headers });
    const [seen] = recorder.upgrades;
    expect(seen?.url).toBe('/ws');
    expect(Object.keys(seen?.headers ?? {}).sort()).toEqual([
      'connection',
      'host',
      'sec-websocket-key',
      'sec-websocket-version',
      'upgrade',
      'x-svc-dashboard-proxy-secret',
      'x-svc-proxy-peer',
      'x-svc-proxy-proto',
    ]);
  });

  it.each(['output', 'realtime', 'realtime-agent'])('carry the session as a bearer to /voice/%s', async (area) => {
    const { recorder } = await open(`/voice/${area}/${ID}?ticket=good`, { headers: SESSION });
    expect(recorder.upgrades[0]?.url).toBe(`/voice/${area}/${ID}`);
    expect(recorder.upgrades[0]?.headers.authorization).toBe('Bearer a-session');
    expect(recorder.upgrades[0]?.headers['x-svc-relay-session']).toBeUndefined();
  });

  it.each([
    ['offered', ['ticket.good', 'other'], 'ticket.good', 'ticket.good'],
    ['not offered', ['other'], 'ticket.good', ''],
    ['not chosen', ['other'], undefined, ''],
  ])(
    'have the subprotocol of the ticket only if it is offered: %s',
    async (_name, protocols, subprotocol, expected) => {
      const recorder = await startRecorder();
      const dashboard = await startDashboard({ relayPort: recorder.port });
      dashboard.host.consumeWsTicket = async () => ({ subprotocol });
      const { port } = dashboard;
      const lines = Object.entries({ ...HANDSHAKE, 'sec-websocket-protocol': protocols.join(', ') });
      const connection = await connectRaw(port);
      onTestFinished(() => void connection.socket.destroy());
      connection.write(
        `GET ${TRANSPORT}/ws HTTP/1.1\r\nhost: d\r\n${lines.map(([name, value]) => `${name}: ${value}`).join('\r\n')}\r\n\r\n`,
      );
      const { status, headers } = await connection.head();
      expect([status, headers['sec-websocket-protocol'] ?? '']).toEqual([101, expected]);
    },
  );

  it('carry text and binary both ways, in order, from the first frame on', async () => {
    const recorder = await startRecorder();
    recorder.server.on('opened', (relay: WebSocket) => {
      relay.send('hello');
      relay.on('message', (data, isBinary) => relay.send(data, { binary: isBinary }));
    });
    const client = dial(await startDashboard({ relayPort: recorder.port }), '/ws?ticket=good');
    const received: [string, boolean][] = [];
    client.on('message', (data, isBinary) => received.push([String(data), isBinary]));
    await once(client, 'open');
    client.send('text ü');
    client.send(Buffer.from('bytes'));
    client.send('');
    await expect.poll(() => received.length).toBe(4);
    expect(received).toEqual([
      ['hello', false],
      ['text ü', false],
      ['bytes', true],
      ['', false],
    ]);
  });

  it('hold back a side that sends faster than the other reads', async () => {
    const { client, relay, recorder } = await open();
    client.pause();
    const chunk = Buffer.alloc(256 * 1024);
    for (let count = 0; count < 256; count++) relay.send(chunk, { binary: true });
    let before = -1;
    // What the relay cannot send any more stays with it: the ingress keeps a bounded part of 64 MiB.
    await expect
      .poll(
        () => {
          const isStill = relay.bufferedAmount === before;
          before = relay.bufferedAmount;
          return isStill;
        },
        { interval: 100 },
      )
      .toBe(true);
    expect(relay.bufferedAmount).toBeGreaterThan(32 * 1024 * 1024);
    let size = 0;
    client.on('message', (data) => {
      size += (data as Buffer).length;
    });
    client.resume();
    await expect.poll(() => size).toBe(256 * chunk.length);
    expect(recorder.sockets).toHaveLength(1);
  });
});

describe('the end of a socket (contract 07 §4.3)', () => {
  it.each([
    [1000, 'bye'],
    [1001, ''],
    [1008, 'policy'],
    [1013, 'slow consumer'],
    [4401, 'session revoked'],
  ])('%i is mirrored to the client and to the relay', async (code, reason) => {
    const first = await open();
    first.relay.close(code, reason);
    expect(await closed(first.client)).toEqual({ code, reason });
    const second = await open();
    second.client.close(code, reason);
    expect(await closed(second.relay)).toEqual({ code, reason });
  });

  it('without a code becomes 1000, and a broken connection 1011', async () => {
    const first = await open();
    first.relay.close();
    expect((await closed(first.client)).code).toBe(1000);
    const second = await open();
    second.relay.terminate();
    expect((await closed(second.client)).code).toBe(1011);
    const third = await open();
    third.client.terminate();
    expect((await closed(third.relay)).code).toBe(1011);
  });

  it('a message over the limit closes both sides with 1009', async () => {
    const limits = { sockets: { maxMessage: 1000 } };
    const first = await open(undefined, { limits });
    first.client.send('x'.repeat(1000));
    expect(String((await once(first.relay, 'message'))[0])).toHaveLength(1000);
    first.client.send('x'.repeat(1001));
    const codes = await Promise.all([closed(first.client), closed(first.relay)]);
    expect(codes.map(({ code }) => code)).toEqual([1009, 1009]);
    const second = await open(undefined, { limits });
    second.relay.send('x'.repeat(1001));
    const others = await Promise.all([closed(second.client), closed(second.relay)]);
    expect(others.map(({ code }) => code)).toEqual([1009, 1009]);
  });

  it('broken frames end with 1002, and the relay is told', async () => {
    const { dashboard, recorder } = await open();
    const opened = once(recorder.server, 'opened');
    const socket = connectTcp(dashboard.port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    const lines = Object.entries(HANDSHAKE).map(([name, value]) => `${name}: ${value}`);
    socket.write(`GET ${TRANSPORT}/ws?ticket=good HTTP/1.1\r\nhost: d\r\n${lines.join('\r\n')}\r\n\r\n`);
    const [relay] = await opened;
    socket.write(frame({ opcode: OPCODE.text, rsv: 4, payload: 'x' }));
    expect((await closed(relay)).code).toBe(1002);
  });

  it('disabling the plugin closes both sides with 1008 within 2 s', TIMED, async () => {
    const { dashboard, client, relay } = await open();
    const ends = Promise.all([closed(client), closed(relay)]);
    const disabledAt = performance.now();
    dashboard.host.isPluginEnabled = () => false;
    const end = { code: 1008, reason: 'Relay plugin is disabled' };
    expect(await ends).toEqual([end, end]);
    expect(performance.now() - disabledAt).toBeLessThan(2_000);
    expect((await upgrade(dashboard, '/ws?ticket=good')).status).toBe(403);
  });

  it('a dashboard that cannot tell whether the plugin is enabled closes them too', async () => {
    const { dashboard, client } = await open(undefined, { limits: { sockets: { check: 20 } } });
    dashboard.host.isPluginEnabled = () => Promise.reject(new Error('gone'));
    expect((await closed(client)).code).toBe(1008);
  });

  it('so does one that no longer answers', async () => {
    const { dashboard, client } = await open(undefined, { limits: { decision: 50, sockets: { check: 20 } } });
    dashboard.host.isPluginEnabled = () => new Promise<never>(() => {});
    expect((await closed(client)).code).toBe(1008);
  });

  it('close() closes all with 1001, also those whose client does not answer', async () => {
    const { dashboard, client, relay } = await open();
    const silent = await connectRaw(dashboard.port);
    const lines = Object.entries(HANDSHAKE).map(([name, value]) => `${name}: ${value}`);
    silent.write(`GET ${TRANSPORT}/ws?ticket=good HTTP/1.1\r\nhost: d\r\n${lines.join('\r\n')}\r\n\r\n`);
    expect((await silent.head()).status).toBe(101);
    const ends = Promise.all([closed(client), closed(relay)]);
    await dashboard.plugin.close();
    expect((await ends).map(({ code }) => code)).toEqual([1001, 1001]);
    await expect.poll(() => silent.isOver()).toBe(true);
    expect((await upgrade(dashboard, '/ws?ticket=good')).status).toBe(403);
  });

  it('a side that goes silent is dropped, one that answers pings is not', async () => {
    const limits = { sockets: { check: 20, ping: 50, idle: 2_000 } };
    const { dashboard, client, relay } = await open(undefined, { limits });
    await Promise.all([once(client, 'ping'), once(relay, 'ping')]);
    const silent = await connectRaw(dashboard.port);
    onTestFinished(() => void silent.socket.destroy());
    const lines = Object.entries(HANDSHAKE).map(([name, value]) => `${name}: ${value}`);
    silent.write(`GET ${TRANSPORT}/ws?ticket=good HTTP/1.1\r\nhost: d\r\n${lines.join('\r\n')}\r\n\r\n`);
    await silent.head();
    await expect.poll(() => silent.isOver()).toBe(true);
    expect([client.readyState, relay.readyState]).toEqual([WebSocket.OPEN, WebSocket.OPEN]);
  });
});
