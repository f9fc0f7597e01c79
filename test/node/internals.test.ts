import { type EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { types } from 'node:util';
import nodeAdapter from 'crossws/adapters/node';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  allowMissingHost,
  checkConnectionsEvery,
  currentResponse,
  gatherOnArrival,
  responseOn,
  takeMessageListener,
  takeReservation,
  webSocketOf,
} from '../../cli/runtime/node/internals.ts';
import { releaseChunks } from '../../lib/host/node/release-chunks.ts';
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

/** How many bytes of incomplete frames and messages a socket's receiver keeps, and the bytes of the buffers behind them. */
function heldBy(webSocket: EventEmitter): { kept: number; memory: number } {
  type Parts = { _mask?: Uint8Array; _buffers: Uint8Array[]; _fragments: Uint8Array[] };
  const { _mask, _buffers, _fragments } = (webSocket as unknown as { _receiver: Parts })._receiver;
  const parts = [...(_mask ? [_mask] : []), ..._buffers, ..._fragments];
  const kept = parts.reduce((sum, { length }) => sum + length, 0);
  return { kept, memory: [...new Set(parts.map(({ buffer }) => buffer))].reduce((sum, it) => sum + it.byteLength, 0) };
}

/** A server that notes what its sockets receive and hold after each chunk. */
async function startReceiver(install: (webSocket: EventEmitter) => void) {
  const texts: string[] = [];
  const held: { kept: number; memory: number }[] = [];
  const server = createServer();
  const { handleUpgrade } = nodeAdapter({
    hooks: {
      open(peer) {
        const webSocket = webSocketOf(peer);
        install(webSocket);
        const { _receiver } = webSocket as unknown as { _receiver: { _write(...args: unknown[]): void } };
        const { _write } = _receiver;
        _receiver._write = function (...args) {
          _write.apply(this, args);
          held.push(heldBy(webSocket));
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
  return { raw, texts, held };
}

describe.each([
  ['releaseChunks', releaseChunks],
  ['gatherOnArrival', gatherOnArrival],
])('%s: what a socket keeps between chunks', (_name, install) => {
  const long = frame({ payload: 'x'.repeat(60_000) });
  it.each([
    ['a message', [long], 0],
    ['a ping after a message', [long, frame({ opcode: OPCODE.ping, payload: 'x' })], 0],
    ['the start of a frame after a message', [long, frame({ payload: 'x' }).subarray(0, 3)], 16],
    ['the start of a payload after a message', [long, frame({ payload: 'xyz' }).subarray(0, -1)], 16],
    ['a fragment after a message', [long, frame({ payload: 'x', fin: false })], 16],
  ])('%s', async (_what, bytes, most) => {
    const { raw, texts, held } = await startReceiver(install);
    raw.write(Buffer.concat(bytes));
    await expect.poll(() => texts).toHaveLength(1);
    await expect.poll(() => held.at(-1)?.memory).toBeLessThanOrEqual(most);
  });

  it('a message in small fragments, each in a chunk with 56 KiB of pongs', async () => {
    const { raw, texts, held } = await startReceiver(install);
    const pongs = Buffer.concat(
      Array.from({ length: 450 }, () => frame({ opcode: OPCODE.pong, payload: 'x'.repeat(125) })),
    );
    raw.write(frame({ payload: '0', fin: false }));
    for (let count = 1; count < 40; count++) {
      raw.write(Buffer.concat([pongs, frame({ payload: String(count % 10), opcode: 0, fin: false })]));
      await expect.poll(() => held.at(-1)?.kept).toBe(count + 1);
      expect(held.at(-1)?.memory).toBeLessThanOrEqual(2 * (count + 1));
    }
    raw.write(frame({ payload: 'end', opcode: 0 }));
    await expect.poll(() => texts).toEqual([`${'0123456789'.repeat(4)}end`]);
  });

  it('any messages in any fragments and chunks arrive as they were sent', async () => {
    const length = fc.oneof(fc.nat(20), fc.nat(9000), fc.integer({ min: 1_000_000, max: 1_300_000 }));
    const message = fc.record({ parts: fc.array(length, { minLength: 1, maxLength: 4 }), seed: fc.nat(25) });
    const letters = (seed: number, size: number) => String.fromCharCode(97 + seed).repeat(size);
    await fc.assert(
      fc.asyncProperty(
        fc.array(message, { minLength: 1, maxLength: 4 }),
        fc.array(fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 70_000 })), { minLength: 1 }),
        async (messages, sizes) => {
          const { raw, texts, held } = await startReceiver(install);
          const sent = messages.map(({ parts, seed }) => parts.map((size, at) => letters((seed + at) % 26, size)));
          const frames = sent.flatMap((parts) =>
            parts.flatMap((payload, at) => [
              frame({ payload, opcode: at === 0 ? OPCODE.text : 0, fin: at === parts.length - 1 }),
              frame({ opcode: OPCODE.pong, payload: 'in between' }),
            ]),
          );
          const bytes = Buffer.concat(frames);
          for (let at = 0, turn = 0; at < bytes.length; turn++) {
            // Many small writes, but not a million of them.
            const size = turn < 200 ? (sizes[turn % sizes.length] as number) : 500_000;
            raw.write(bytes.subarray(at, at + size));
            at += size;
            if (turn % 8 === 0) await new Promise(setImmediate);
          }
          await expect.poll(() => texts.length).toBe(sent.length);
          expect(texts.map((text) => text.length)).toEqual(sent.map((parts) => parts.join('').length));
          expect(texts.every((text, at) => text === sent[at]?.join(''))).toBe(true);
          await expect.poll(() => held.at(-1)).toEqual({ kept: 0, memory: 0 });
          raw.destroy();
        },
      ),
      { numRuns: 25 },
    );
  });
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
