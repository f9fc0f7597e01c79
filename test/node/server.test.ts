import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { expect, it, vi } from 'vitest';
import { createRelayServer } from '../../cli/runtime/node/server.ts';
import type { SocketTable } from '../../handlers/sockets.ts';
import { ByteBudget } from '../../lib/kit/byte-budget.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import type { Transport } from '../../lib/socket/transport.ts';
import { WebResponse } from '../../lib/web/response.ts';
import { cleanups } from '../support/built-relay.ts';
import { connectRaw, exchange, frame, handshakeHeaders, request } from '../support/raw-socket.ts';

const pending = cleanups();

it('an upgrade that fails costs one connection, and one line of the log', async () => {
  const log: string[] = [];
  const sockets: SocketTable = { upgrade: () => Promise.reject(new Error('no reason')), rowOf: () => undefined };
  const server = createRelayServer({
    log: createLog('DEBUG', (line) => log.push(line)),
    fetch: async () => new WebResponse('fine'),
    sockets,
    reading: new ByteBudget(1, systemClock),
  });
  const listener = createServer(server.handler).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  server.serve(listener);
  pending.push(() => server.close());
  const { port } = listener.address() as AddressInfo;
  const raw = await connectRaw(port);
  pending.push(raw.destroy);
  raw.write(request('GET', '/ws', handshakeHeaders()));
  await raw.ended();
  expect(log).toEqual([expect.stringMatching(/\[ERROR\].*upgrade failed: .*no reason/)]);
  expect((await exchange(port, request('GET', '/', { connection: 'close' }))).body).toBe('fine');
});

it('frames of one turn leave in one write, even when the connection is dropped in that turn', async () => {
  const row = { path: '/ws', guard: () => undefined, maxMessage: 1024, binary: false };
  const open = (socket: Transport) => ({
    message(text: string) {
      socket.send('one');
      socket.send('two');
      if (text === 'drop') socket.terminate();
    },
    drained() {},
    pinged() {},
    closed() {},
  });
  const server = createRelayServer({
    log: createLog('DEBUG', () => {}),
    fetch: async () => new WebResponse('fine'),
    sockets: {
      upgrade: async () => ({ row: { ...row, open: (_, socket) => open(socket) }, open }),
      rowOf: () => undefined,
    },
    reading: new ByteBudget(1, systemClock),
  });
  const listener = createServer(server.handler).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  server.serve(listener);
  pending.push(() => server.close());
  const accepted = once(listener, 'connection');
  const raw = await connectRaw((listener.address() as AddressInfo).port);
  pending.push(raw.destroy);
  const [socket] = (await accepted) as [Socket];
  const writes = vi.spyOn(socket, '_writev');
  raw.write(request('GET', '/ws', handshakeHeaders()));
  expect((await raw.head()).status).toBe(101);
  raw.write(frame({ payload: 'stay' }));
  expect([String((await raw.frame()).payload), String((await raw.frame()).payload)]).toEqual(['one', 'two']);
  expect(writes).toHaveBeenCalledTimes(1);
  raw.write(frame({ payload: 'drop' }));
  expect([String((await raw.frame()).payload), String((await raw.frame()).payload)]).toEqual(['one', 'two']);
  await raw.ended();
  expect(writes).toHaveBeenCalledTimes(2);
});

it('04 §5.4a: says whether a whole response was handed to the system', async () => {
  const told: boolean[] = [];
  // More than any buffer of a connection takes.
  const long = 'x'.repeat(64 * 1024 * 1024);
  const server = createRelayServer({
    log: createLog('DEBUG', () => {}),
    fetch: async ({ url }) => {
      const response = new WebResponse(url.endsWith('/long') ? long : 'short');
      response.sent = (isWhole) => told.push(isWhole);
      return response;
    },
    reading: new ByteBudget(1, systemClock),
    sockets: { upgrade: () => Promise.reject(new Error('none')), rowOf: () => undefined },
  });
  const listener = createServer(server.handler).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  server.serve(listener);
  pending.push(() => server.close());
  const { port } = listener.address() as AddressInfo;
  for (const path of ['/short', '/long']) {
    await (await fetch(`http://127.0.0.1:${port}${path}`)).text();
  }
  const unread = connect(port, '127.0.0.1');
  unread.write(request('GET', '/long'));
  await once(unread, 'readable');
  expect(told).toEqual([true, true]);
  unread.destroy();
  await vi.waitFor(() => expect(told).toEqual([true, true, false]));
});
