import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { type NodeBrokerOptions, startNodeBroker } from '../../cli/runtime/node/broker.ts';
import { digestOf } from '../../lib/kit/sha256.ts';
import { createLog } from '../../lib/log.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { encodeMessage } from '../../lib/reach/messages.ts';
import { openBrokerStore } from '../../storage/broker.ts';
import { makeIdentity } from '../support/certificate.ts';
import { createTestClock } from '../support/clock.ts';
import { dataFrame } from '../support/frames.ts';

async function start(options: Partial<NodeBrokerOptions> = {}) {
  const clock = createTestClock();
  const [id, token] = [newId(), newToken()];
  const running = await startNodeBroker({
    hosts: new Map([[id, [digestOf(token)]]]),
    store: openBrokerStore(),
    host: '127.0.0.1',
    port: 0,
    log: createLog('ERROR', () => {}),
    clock,
    ...options,
  });
  onTestFinished(() => running.stop());
  const { port } = running.address;
  /** A registered host, or the code of its refusal. */
  async function host(options = {}) {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`, options);
    onTestFinished(() => socket.terminate());
    await once(socket, 'open');
    const answer = once(socket, 'message');
    const registration = { role: 'host', host_id: id, connection_id: newId(), credential_kind: 'host', token } as const;
    socket.send(encodeMessage({ type: 'register', ...registration }));
    const { type, code } = JSON.parse(String((await answer)[0]));
    return { socket, answer: code ?? type };
  }
  return { clock, port, host, id };
}

it('08 §7.3: a host that answers no ping for 15 s gives way, and one that answers stays', async () => {
  const { clock, host } = await start();
  const dead = await host({ autoPong: false });
  expect(dead.answer).toBe('registered');
  const pinged = once(dead.socket, 'ping');
  const closed = once(dead.socket, 'close');
  await clock.advanceAsync(31_000);
  await pinged;
  expect((await host()).answer).toBe('host_busy');
  await clock.advanceAsync(16_000);
  expect((await closed)[0]).toBe(1006);
  const alive = await host();
  expect(alive.answer).toBe('registered');
  for (let round = 0; round < 3; round++) {
    const asked = once(alive.socket, 'ping');
    await clock.advanceAsync(32_000);
    await asked;
    // The answer has passed the broker once it answers a ping of ours.
    const answered = once(alive.socket, 'pong');
    alive.socket.ping();
    await answered;
    await clock.advanceAsync(2_000);
  }
  expect(alive.socket.readyState).toBe(WebSocket.OPEN);
});

it('08 §7.3: a host that comes back over another link waits for its dead one for 5 s only (issue 23 §2.4)', async () => {
  const { clock, host } = await start();
  const dead = await host({ autoPong: false });
  const pinged = once(dead.socket, 'ping');
  const closed = once(dead.socket, 'close');
  expect((await host()).answer).toBe('host_busy');
  await pinged;
  await clock.advanceAsync(3_000);
  expect((await host()).answer).toBe('host_busy');
  await clock.advanceAsync(3_000);
  expect((await closed)[0]).toBe(1006);
  const alive = await host();
  expect(alive.answer).toBe('registered');
  const asked = once(alive.socket, 'ping');
  expect((await host()).answer).toBe('host_busy');
  await asked;
  const answered = once(alive.socket, 'pong');
  alive.socket.ping();
  await answered;
  await clock.advanceAsync(7_000);
  expect(alive.socket.readyState).toBe(WebSocket.OPEN);
});

it('08 §7.5: bytes of a client reach its host in whole DATA frames, with a length of each form', async () => {
  const { clock, port, host, id } = await start();
  const { socket } = await host();
  const messages: Buffer[] = [];
  socket.on('message', (data: Buffer) => messages.push(data));
  const token = newToken();
  const route = { credential_id: 'phone', device_id_hash: digestOf('phone'), expires_at: clock.now() / 1000 + 3600 };
  socket.send(encodeMessage({ type: 'publish_route', token_sha256: digestOf(token), ...route }));
  await expect.poll(() => messages.length).toBe(1);
  const client = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`);
  onTestFinished(() => client.terminate());
  await once(client, 'open');
  const registration = {
    role: 'client',
    host_id: id,
    connection_id: newId(),
    credential_kind: 'route',
    token,
  } as const;
  const answer = once(client, 'message');
  client.send(encodeMessage({ type: 'register', ...registration }));
  const { stream_id } = JSON.parse(String((await answer)[0]));
  // With its header of 18 bytes, the largest of the lengths of 1 and 2 bytes, and the smallest of 2 and 8.
  const payloads = [1, 107, 108, 65_517, 65_518, 200_000].map((size) => Buffer.alloc(size, size % 251));
  const frames = payloads.map((payload) => dataFrame(stream_id, payload));
  for (const [index, payload] of payloads.entries()) {
    client.send(payload);
    await expect.poll(() => messages.length).toBe(3 + index);
  }
  for (const [index, frame] of frames.entries()) expect(messages[2 + index]?.equals(frame)).toBe(true);
});

it('08 §7.3: a socket that sends nothing is refused after 10 s', async () => {
  const { clock, port } = await start();
  const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`);
  await once(socket, 'open');
  const refused = once(socket, 'message');
  const closed = once(socket, 'close');
  await clock.advanceAsync(11_000);
  expect(JSON.parse(String((await refused)[0]))).toMatchObject({ code: 'unauthorized' });
  expect((await closed).map(String)).toEqual(['1008', '']);
});

/** Opens idle TCP connections, and resolves to those that the broker holds. */
async function hold(port: number, count: number, localAddress = '127.0.0.1'): Promise<Socket[]> {
  const sockets = Array.from({ length: count }, () => connect({ port, host: '127.0.0.1', localAddress }));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  const closed = new Set<Socket>();
  for (const socket of sockets) socket.on('error', () => {}).once('close', () => closed.add(socket));
  await Promise.all(sockets.map((socket) => once(socket, 'connect').catch(() => {})));
  // Connections are accepted in order, so that one which is answered stands behind all of these.
  const last = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.99' });
  last.end('GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  last.resume();
  await once(last, 'close');
  return sockets.filter((socket) => !closed.has(socket));
}

describe('08 §7.7: connections per address', () => {
  it('holds 256 of one address, whatever they are there for, and still serves the others', async () => {
    const { port, host } = await start();
    const held = await hold(port, 300, '127.0.0.2');
    expect(held).toHaveLength(256);
    expect((await host()).answer).toBe('registered');
    for (const socket of held.slice(0, 100)) socket.destroy();
    await expect.poll(async () => (await hold(port, 10, '127.0.0.2')).length).toBe(10);
  });

  it('refuses them before the TLS handshake', async (context) => {
    const { cert, key } = await makeIdentity(context, { san: 'IP:127.0.0.1' });
    const { port } = await start({ tls: { cert, key } });
    const held = await hold(port, 300, '127.0.0.2');
    expect(held).toHaveLength(256);
    const shut = connectTls({
      socket: connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' }),
      rejectUnauthorized: false,
    });
    await expect(once(shut, 'secureConnect')).rejects.toThrow();
    const other = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
    await once(other, 'secureConnect');
    other.destroy();
  });

  it('counts clients of a proxy on loopback by the address in its header', async () => {
    const { port, host } = await start({ clientIpHeader: 'x-client-ip' });
    expect(await hold(port, 300)).toHaveLength(300);
    expect((await host({ headers: { 'x-client-ip': '192.0.2.1' } })).answer).toBe('registered');
  });
});

it('08 §7.2: malformed requests and handshakes end their own connection only', async () => {
  const { port, host } = await start();
  const attempts = [
    'GARBAGE\r\n\r\n',
    'GET /v1/connect HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n',
    'GET /v1/connect?a HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n',
    `GET / HTTP/1.1\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`,
    'CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n',
  ];
  for (const attempt of attempts) {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    socket.resume();
    socket.write(attempt);
    await once(socket, 'close');
  }
  expect((await host()).answer).toBe('registered');
});
