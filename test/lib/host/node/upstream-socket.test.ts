import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { createNodeDialUpstream } from '../../../../lib/host/node/upstream-socket.ts';
import type { UpstreamSocketRequest } from '../../../../lib/host/upstream-socket.ts';
import { TIMED } from '../../../support/limits.ts';

const dial = createNodeDialUpstream();

/** A WebSocket server on loopback. `serve` gets each socket; `refuse` answers upgrades instead. */
async function startServer(serve: (socket: WebSocket) => void, refuse?: (socket: Socket) => void) {
  const requests: { url?: string; headers: Record<string, unknown> }[] = [];
  const sockets: WebSocket[] = [];
  const connections: Socket[] = [];
  const wss = new WebSocketServer({ noServer: true });
  const server = createServer();
  server.on('upgrade', (request, socket: Socket, head) => {
    requests.push(request);
    connections.push(socket);
    if (refuse) return refuse(socket.resume());
    wss.handleUpgrade(request, socket, head, (open) => {
      sockets.push(open);
      open.on('error', () => {});
      serve(open);
    });
  });
  server.on('connection', (socket) => socket.on('error', () => {}));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of connections) socket.destroy();
    server.close();
  });
  return { url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/v1?model=x`, requests, sockets, connections };
}

/** Dials, and records the events. */
async function open(url: string, request: Partial<UpstreamSocketRequest> = {}) {
  const messages: string[] = [];
  const ends: { code: number; reason: string }[] = [];
  const end = new AbortController();
  const socket = await dial(
    { url, headers: {}, signal: end.signal, maxMessage: 1024, ...request },
    { message: (text) => messages.push(text), closed: (how) => ends.push(how) },
  );
  onTestFinished(() => socket.terminate());
  const ended = async () => {
    await vi.waitFor(() => expect(ends).toHaveLength(1));
    return ends[0];
  };
  return { socket, messages, ends, ended, abort: () => end.abort() };
}

describe('a socket to a server behind the relay', () => {
  it('sends the headers, and text both ways in order', async () => {
    const server = await startServer((socket) => socket.on('message', (data) => socket.send(`heard ${data}`)));
    const { socket, messages } = await open(server.url, { headers: { authorization: 'Bearer key' } });
    for (const text of ['1', '2', 'ü']) socket.send(text);
    await vi.waitFor(() => expect(messages).toEqual(['heard 1', 'heard 2', 'heard ü']));
    expect(server.requests[0]?.url).toBe('/v1?model=x');
    expect(server.requests[0]?.headers).toMatchObject({ authorization: 'Bearer key' });
    expect(server.requests[0]?.headers).not.toHaveProperty('sec-websocket-extensions');
    expect(socket.unsent()).toBe(0);
  });

  it('takes http for ws', async () => {
    const server = await startServer((socket) => socket.send('hello'));
    const { messages } = await open(server.url.replace('ws:', 'http:'));
    await vi.waitFor(() => expect(messages).toEqual(['hello']));
  });

  it('delivers what comes with the upgrade itself, but no binary frame', async () => {
    const server = await startServer((socket) => {
      socket.send(Buffer.from('binary'));
      socket.send('text');
      socket.close(4001, 'done');
    });
    const { messages, ended } = await open(server.url);
    expect(await ended()).toEqual({ code: 4001, reason: 'done' });
    expect(messages).toEqual(['text']);
  });

  it.each([
    ['HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n', { message: 'HTTP 401', status: 401 }],
    ['HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n', { message: 'HTTP 302', status: 302 }],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n', { message: 'HTTP 200', status: 200 }],
  ])('rejects a refused upgrade with its status: %j', async (answer, failure) => {
    const server = await startServer(
      () => {},
      (socket) => socket.write(answer),
    );
    await expect(open(server.url)).rejects.toMatchObject(failure);
    await vi.waitFor(() => expect(server.connections.every((socket) => socket.readableEnded)).toBe(true));
    expect(server.connections).toHaveLength(1);
  });

  it('rejects what cannot be reached, without an address', async () => {
    await expect(open('ws://127.0.0.1:1/')).rejects.toMatchObject({
      message: 'connection refused',
      status: undefined,
      isRefused: true,
    });
    const secret = 'this is not the URL of a WebSocket';
    await expect(open('ftp://secret.example')).rejects.toMatchObject({ message: secret });
    await expect(open('nonsense')).rejects.toMatchObject({ message: secret });
  });

  it('gives up on an upgrade that is not answered in time', async () => {
    const server = await startServer(
      () => {},
      () => {},
    );
    const impatient = createNodeDialUpstream({ connectTimeout: 50 });
    const request = { url: server.url, headers: {}, signal: new AbortController().signal, maxMessage: 1 };
    const late = { message: 'timed out while connecting' };
    await expect(impatient(request, { message() {}, closed() {} })).rejects.toMatchObject(late);
    await expect(open(server.url, { connectTimeout: 50 })).rejects.toMatchObject(late);
    await vi.waitFor(() => expect(server.connections.every((socket) => socket.readableEnded)).toBe(true));
  });

  it('pings, and drops a server that does not answer', TIMED, async () => {
    let pings = 0;
    const server = await startServer((socket) => socket.on('ping', () => pings++));
    const { socket, ends, ended } = await open(server.url, { pingInterval: 100 });
    await vi.waitFor(() => expect(pings).toBeGreaterThan(3));
    // Unread answers are not missing ones.
    socket.pause();
    const before = pings;
    await vi.waitFor(() => expect(pings).toBeGreaterThan(before + 3));
    expect(ends).toEqual([]);
    socket.resume();
    server.connections[0]?.pause();
    expect(await ended()).toEqual({ code: 1006, reason: 'no answer to a ping' });
  });

  it('an abort ends the attempt, and later the socket', async () => {
    const silent = await startServer(
      () => {},
      () => {},
    );
    const end = new AbortController();
    const attempt = open(silent.url, { signal: end.signal });
    attempt.catch(() => {});
    await vi.waitFor(() => expect(silent.connections).toHaveLength(1));
    end.abort();
    await expect(attempt).rejects.toMatchObject({ message: 'aborted' });
    await expect(open(silent.url, { signal: AbortSignal.abort() })).rejects.toMatchObject({ message: 'aborted' });

    const server = await startServer(() => {});
    const { ended, abort, socket } = await open(server.url);
    abort();
    expect(await ended()).toEqual({ code: 1006, reason: 'aborted' });
    socket.send('no effect');
    socket.close();
  });

  it('closes with 1009 when a message is too large', async () => {
    const server = await startServer((socket) => socket.send('x'.repeat(1025)));
    const { messages, ended } = await open(server.url);
    expect((await ended())?.code).toBe(1009);
    expect(messages).toEqual([]);
  });

  it('performs the closing handshake, even while paused', async () => {
    const server = await startServer(() => {});
    const { socket, ended, ends } = await open(server.url);
    const closed = new Promise((resolve) =>
      server.sockets[0]?.on('close', (code, reason) => resolve([code, String(reason)])),
    );
    socket.pause();
    socket.close(4000, 'enough');
    expect(await ended()).toEqual({ code: 4000, reason: 'enough' });
    expect(await closed).toEqual([4000, 'enough']);
    expect(ends).toHaveLength(1);
  });

  it('reports a connection that breaks as 1006, once', async () => {
    const server = await startServer(() => {});
    const { ended, ends, socket } = await open(server.url);
    server.connections[0]?.destroy();
    expect((await ended())?.code).toBe(1006);
    socket.terminate();
    expect(ends).toHaveLength(1);
  });

  it('reads no further while paused', async () => {
    let isDone = false;
    const server = await startServer((socket) => {
      const text = 'x'.repeat(1024);
      let left = 64 * 1024;
      const more = () => {
        while (left > 0 && socket.bufferedAmount < 1024 * 1024) {
          left--;
          socket.send(text, left === 0 ? () => (isDone = true) : undefined);
        }
        if (left > 0) setTimeout(more, 5);
      };
      socket.once('message', more);
    });
    let size = 0;
    let received = 0;
    const socket = await dial(
      { url: server.url, headers: {}, signal: new AbortController().signal, maxMessage: 1024 },
      {
        message: (text) => {
          size += text.length;
          received++;
        },
        closed() {},
      },
    );
    onTestFinished(() => socket.terminate());
    socket.pause();
    socket.send('go');
    let last = -1;
    const still = () =>
      vi.waitFor(
        () => {
          const moved = server.connections[0]?.bytesWritten !== last;
          last = server.connections[0]?.bytesWritten ?? 0;
          expect(moved || last < 100_000).toBe(false);
        },
        { interval: 300 },
      );
    await still();
    expect([received, isDone]).toEqual([0, false]);
    socket.resume();
    await vi.waitFor(() => expect(size).toBe(64 * 1024 * 1024));
  });
});
