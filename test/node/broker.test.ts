import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { startNodeBroker } from '../../cli/runtime/node/broker.ts';
import { createLog } from '../../lib/log.ts';
import { digestOf, newId, newToken } from '../../lib/reach/ids.ts';
import { encodeMessage } from '../../lib/reach/messages.ts';
import { openBrokerStore } from '../../storage/broker.ts';
import { createTestClock } from '../support/clock.ts';

async function start() {
  const clock = createTestClock();
  const [id, token] = [newId(), newToken()];
  const running = await startNodeBroker({
    hosts: new Map([[id, [digestOf(token)]]]),
    store: openBrokerStore(),
    host: '127.0.0.1',
    port: 0,
    log: createLog('ERROR', () => {}),
    clock,
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
  return { clock, port, host };
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
