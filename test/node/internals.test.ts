import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { types } from 'node:util';
import nodeAdapter from 'crossws/adapters/node';
import { expect, it } from 'vitest';
import {
  allowMissingHost,
  checkConnectionsEvery,
  currentResponse,
  gatherOnArrival,
  releaseChunk,
  responseOn,
  takeEndListener,
  takeMessageListener,
  takeReservation,
  webSocketOf,
} from '../../cli/runtime/node/internals.ts';
import { cleanups } from '../support/built-relay.ts';
import { connectRaw, frame, handshakeHeaders, OPCODE, request } from '../support/raw-socket.ts';

// Each case fails when Node or crossws changes the undocumented part that `internals.ts` relies on.

const pending = cleanups();

async function listen(server: ReturnType<typeof createServer>) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  pending.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const raw = await connectRaw((server.address() as AddressInfo).port);
  pending.push(raw.destroy);
  return raw;
}

it('currentResponse: the first unsent response of a connection, of several that are pipelined', async () => {
  const open: { socket: Socket; res: ServerResponse }[] = [];
  const raw = await listen(createServer((req, res) => void open.push({ socket: req.socket, res })));
  raw.write(Buffer.concat([request('GET', '/first'), request('GET', '/second')]));
  await expect.poll(() => open.length).toBe(2);
  const [first, second] = open as [(typeof open)[0], (typeof open)[0]];
  expect(currentResponse(first.socket)).toBe(first.res);
  expect(second.res.socket).toBeNull();
  first.res.end();
  await raw.response();
  expect(currentResponse(first.socket)).toBe(second.res);
  second.res.end();
  await raw.response();
  expect(currentResponse(first.socket)).toBeUndefined();
});

it('currentResponse: a pipelined upgrade comes while the response before it is under way', async () => {
  let res: ServerResponse | undefined;
  const server = createServer((_req, response) => {
    res = response;
  });
  const upgraded = once(server, 'upgrade') as Promise<[IncomingMessage, Socket, Buffer]>;
  const raw = await listen(server);
  raw.write(Buffer.concat([request('GET', '/'), request('GET', '/ws', handshakeHeaders())]));
  const [, socket] = await upgraded;
  socket.on('error', () => {});
  expect(currentResponse(socket)).toBe(res);
  res?.end();
  await once(res as ServerResponse, 'close');
  expect(currentResponse(socket)).toBeUndefined();
});

it('responseOn: answers a connection that was handed over for an upgrade', async () => {
  const server = createServer();
  let isCurrent = false;
  server.on('upgrade', (req: IncomingMessage, socket: Socket) => {
    socket.on('error', () => {});
    const response = responseOn(socket, req);
    isCurrent = currentResponse(socket) === response;
    response.writeHead(418, { 'content-length': '8' }).end('a teapot');
  });
  const raw = await listen(server);
  raw.write(request('GET', '/', handshakeHeaders()));
  expect(await raw.response()).toMatchObject({ status: 418, body: 'a teapot' });
  expect(isCurrent).toBe(true);
});

it('takeEndListener: takes what the ws of crossws does when a client ends its side', async () => {
  let end: (() => void) | undefined;
  let socket: Socket | undefined;
  const server = createServer();
  const opened = new Promise<{ readyState?: number }>((resolve) => {
    const { handleUpgrade } = nodeAdapter({
      hooks: {
        open(peer) {
          end = takeEndListener(socket as Socket);
          resolve(peer.websocket);
        },
      },
    });
    server.on('upgrade', (req: IncomingMessage, connection: Socket, head: Buffer) => {
      socket = connection;
      void handleUpgrade(req, connection, head);
    });
  });
  const raw = await listen(server);
  raw.write(request('GET', '/', handshakeHeaders()));
  const webSocket = await opened;
  raw.socket.end();
  await once(socket as Socket, 'end');
  expect([socket?.writableEnded, webSocket.readyState]).toEqual([false, 1]);
  end?.call(socket);
  expect([socket?.writableEnded, webSocket.readyState]).toEqual([true, 2]);
});

it('checkConnectionsEvery: a server that listens finds late requests sooner', async () => {
  const server = createServer();
  server.headersTimeout = 20;
  const raw = await listen(server);
  // Node by itself looks every 30 seconds.
  checkConnectionsEvery(server, 20);
  const late = once(server, 'clientError');
  raw.write('GET / HTTP/1.1\r\nhost: ');
  const began = performance.now();
  expect((await late)[0]).toMatchObject({ code: 'ERR_HTTP_REQUEST_TIMEOUT' });
  expect(performance.now() - began).toBeLessThan(15_000);
});

it('releaseChunk: the ws of crossws keeps the mask of a frame, and needs it no longer', async () => {
  const masks: unknown[] = [];
  const texts: string[] = [];
  const server = createServer();
  const maskOf = (webSocket: object) => (webSocket as { _receiver: { _mask: unknown } })._receiver._mask;
  const { handleUpgrade } = nodeAdapter({
    hooks: {
      message(peer, message) {
        texts.push(message.text());
        masks.push(maskOf(peer.websocket));
        releaseChunk(peer.websocket);
        masks.push(maskOf(peer.websocket));
      },
    },
  });
  server.on('upgrade', (req: IncomingMessage, socket: Socket, head: Buffer) => void handleUpgrade(req, socket, head));
  const raw = await listen(server);
  raw.write(request('GET', '/', handshakeHeaders()));
  await raw.head();
  raw.write(Buffer.concat([frame({ payload: 'one' }), frame({ payload: 'two', fin: false })]));
  raw.write(frame({ payload: ' three', opcode: 0 }));
  await expect.poll(() => texts).toEqual(['one', 'two three']);
  expect(masks).toEqual([expect.any(Uint8Array), undefined, expect.any(Uint8Array), undefined]);
});

it('gatherOnArrival: a large frame is joined and unmasked while it arrives, and ws only takes it', async () => {
  const texts: string[] = [];
  const gathered: number[] = [];
  let receiver: { whole?: Uint8Array; _bufferedBytes: number; consume(length: number): Uint8Array } | undefined;
  const server = createServer();
  const { handleUpgrade } = nodeAdapter({
    hooks: {
      open(peer) {
        const webSocket = webSocketOf(peer);
        gatherOnArrival(webSocket);
        receiver = (webSocket as unknown as { _receiver: NonNullable<typeof receiver> })._receiver;
        const { consume } = receiver;
        receiver.consume = function (length) {
          const taken = consume.call(this, length);
          // One buffer of its own for each large payload, with a mask that changes nothing.
          if (length > 65_536 && taken.buffer.byteLength === length) gathered.push(length);
          return taken;
        };
      },
      message(_peer, message) {
        texts.push(message.text());
      },
    },
  });
  server.on('upgrade', (req: IncomingMessage, socket: Socket, head: Buffer) => void handleUpgrade(req, socket, head));
  const raw = await listen(server);
  raw.write(request('GET', '/', handshakeHeaders()));
  await raw.head();
  const large = Array.from({ length: 300_000 }, (_, index) => `${index} \u4e2d`).join();
  const size = Buffer.byteLength(large);
  const first = Buffer.concat([frame({ payload: 'one' }), frame({ payload: large, fin: false })]);
  const rest = Buffer.concat([
    frame({ payload: large, opcode: 0 }),
    frame({ payload: 'two' }),
    frame({ payload: large }),
  ]);
  // A piece that ends just before the frame does, so that the next one ends it and begins another.
  raw.write(first.subarray(0, -3));
  await expect.poll(() => receiver?._bufferedBytes).toBe(size - 3);
  expect(receiver?.whole).toHaveLength(size);
  raw.write(Buffer.concat([first.subarray(-3), rest]));
  await expect.poll(() => texts.map((text) => text.length)).toEqual([3, 2 * large.length, 3, large.length]);
  expect(texts).toEqual(['one', large + large, 'two', large]);
  expect(gathered).toEqual([size, size, size]);
  expect(receiver?.whole).toBeUndefined();
});

it('gatherOnArrival: a long message is reserved before it is read, and the connection is paused until then', async () => {
  const asked: { size: number; read: () => void }[] = [];
  const taken: [length: number, size: number | undefined][] = [];
  let socket: Socket | undefined;
  const server = createServer();
  const { handleUpgrade } = nodeAdapter({
    hooks: {
      open(peer) {
        const webSocket = webSocketOf(peer);
        gatherOnArrival(webSocket, (size, read) => {
          asked.push({ size, read });
          return Object.assign({ isGranted: false }, { size });
        });
        webSocket.on('message', (data: Buffer) => {
          const reservation = takeReservation(webSocket) as { size: number } | undefined;
          taken.push([data.length, reservation?.size]);
        });
      },
    },
    serverOptions: { maxPayload: 5_000_000 },
  });
  server.on('upgrade', (req: IncomingMessage, connection: Socket, head: Buffer) => {
    socket = connection;
    void handleUpgrade(req, connection, head);
  });
  const raw = await listen(server);
  raw.write(request('GET', '/', handshakeHeaders()));
  await raw.head();
  const [short, long] = ['x'.repeat(256 * 1024), 'x'.repeat(3_000_000)];
  raw.write(
    Buffer.concat([frame({ payload: short }), frame({ payload: long }), frame({ payload: short, fin: false })]),
  );
  raw.write(Buffer.concat([frame({ payload: long, opcode: 0 }), frame({ payload: short })]));
  await expect.poll(() => asked.map(({ size }) => size)).toEqual([long.length]);
  expect([taken, socket?.isPaused()]).toEqual([[[short.length, undefined]], true]);
  // Node and the receiver have taken a chunk each beyond the one that waits.
  expect(socket?.bytesRead).toBeLessThan(short.length + 500_000);
  asked[0]?.read();
  await expect.poll(() => asked.map(({ size }) => size)).toEqual([long.length, 5_000_000]);
  asked[1]?.read();
  const both = short.length + long.length;
  const all = [
    [short.length, undefined],
    [long.length, long.length],
    [both, 5_000_000],
    [short.length, undefined],
  ];
  await expect.poll(() => taken).toEqual(all);
});

it('allowMissingHost: a server that listens answers requests without Host', async () => {
  const server = createServer((_req, res) => void res.writeHead(200, { 'content-length': '0' }).end());
  const raw = await listen(server);
  allowMissingHost(server);
  raw.write('GET / HTTP/1.1\r\n\r\n');
  expect((await raw.response()).status).toBe(200);
});

it('takeMessageListener: takes how crossws gets messages, once it has announced the socket', async () => {
  const taken: string[] = [];
  const server = createServer();
  const { handleUpgrade } = nodeAdapter({
    hooks: {
      open(peer) {
        const webSocket = webSocketOf(peer);
        expect(types.isProxy(webSocket)).toBe(false);
        queueMicrotask(() => {
          expect(webSocket.listenerCount('message')).toBe(1);
          takeMessageListener(webSocket);
          webSocket.on('message', (data: Buffer, isBinary: boolean) => void taken.push(`${data} ${isBinary}`));
        });
      },
      message: () => void taken.push('by crossws'),
    },
    idleTimeout: 0,
  });
  server.on('upgrade', (req: IncomingMessage, socket: Socket, head: Buffer) => void handleUpgrade(req, socket, head));
  const raw = await listen(server);
  // The first message comes with the handshake.
  raw.write(Buffer.concat([request('GET', '/', handshakeHeaders()), frame({ payload: 'text' })]));
  raw.write(frame({ opcode: OPCODE.binary, payload: 'bytes' }));
  await expect.poll(() => taken).toEqual(['text false', 'bytes true']);
});
