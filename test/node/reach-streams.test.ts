import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, request } from 'node:https';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect, type TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished, type TestContext, vi } from 'vitest';
import { acceptStreams } from '../../cli/runtime/node/secure-link/streams.ts';
import { concatBytes } from '../../lib/kit/bytes.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { closeFrame, decodeFrame, windowFrame } from '../../lib/reach/frames.ts';
import { HostStreams } from '../../lib/reach/host-streams.ts';
import { newId } from '../../lib/reach/ids.ts';
import { privateAuthority } from '../support/certificate.ts';
import { dataFrame } from '../support/frames.ts';
import { temporaryDirectory } from '../support/temp.ts';

const MIB = 1024 * 1024;

/** A TLS server behind Reach streams, and the client's end of each. There is no broker and no network between them. */
async function setUp(context: TestContext, { window }: { window?: number } = {}) {
  const { ca, cert, key } = await privateAuthority(context, await temporaryDirectory());
  const sockets: Socket[] = [];
  const server = createServer({ cert: await readFile(cert), key: await readFile(key) }, async (req, res) => {
    let bytes = 0;
    for await (const chunk of req) bytes += chunk.length;
    res.setHeader('x-received', bytes);
    res.setHeader('x-remote', String(req.socket.remoteAddress));
    res.end(Buffer.alloc(Number(req.headers['x-want'] ?? 0), 'y'));
  });
  server.on('secureConnection', (socket) => sockets.push(socket));
  const clients = new Map<string, Duplex>();
  const closed: string[] = [];
  const made: Duplex[] = [];
  const socket = {
    sendBytes(head: Uint8Array, parts: readonly Uint8Array[], sent: () => void) {
      const frame = decodeFrame(concatBytes(head, ...parts), window !== undefined);
      if (frame.type === 'data') {
        clients.get(frame.streamId)?.push(frame.payload);
        if (window !== undefined) {
          const credit = decodeFrame(windowFrame(frame.streamId, frame.payload.length), true);
          setImmediate(() => credit.type === 'window' && streams.receive(credit));
        }
      } else if (frame.type === 'close') {
        closed.push(frame.streamId);
        clients.get(frame.streamId)?.push(null);
      }
      setImmediate(sent);
    },
    pause() {},
    resume() {},
  };
  const streams = new HostStreams({
    socket,
    clock: systemClock,
    window,
    completed: () => {},
    open: acceptStreams((stream) => {
      made.push(stream);
      server.emit('connection', stream);
    }),
  });
  onTestFinished(() => streams.abort());

  /** The client's end of a new stream, as bytes. */
  function open(): { id: string; stream: Duplex } {
    const id = newId();
    const receive = (bytes: Uint8Array) => {
      const frame = decodeFrame(bytes, window !== undefined);
      if (frame.type !== 'bad') streams.receive(frame);
    };
    const stream = new Duplex({
      read() {},
      write(chunk, _encoding, done) {
        for (let at = 0; at < chunk.length; at += MIB) receive(dataFrame(id, chunk.subarray(at, at + MIB)));
        setImmediate(done);
      },
      destroy(error, done) {
        receive(closeFrame(id));
        done(error);
      },
    });
    clients.set(id, stream);
    streams.open(id);
    return { id, stream };
  }

  return {
    streams,
    closed,
    made,
    sockets,
    open,
    async tls(): Promise<{ id: string; tls: TLSSocket }> {
      const { id, stream } = open();
      const tls = connect({
        socket: stream,
        servername: 'localhost',
        ca: await readFile(ca),
        ALPNProtocols: ['http/1.1'],
      });
      tls.on('error', () => {});
      const before = sockets.length;
      await once(tls, 'secureConnect');
      // The server has yet to read the client's last message.
      await vi.waitFor(() => expect(sockets.length).toBeGreaterThan(before));
      tls.once('close', () => stream.destroy());
      return { id, tls };
    },
  };
}

async function ask(tls: TLSSocket, want: number, body?: Buffer) {
  const outgoing = request({
    createConnection: () => tls,
    method: body ? 'POST' : 'GET',
    headers: { host: 'localhost', 'x-want': want, connection: 'keep-alive', 'content-length': body?.length ?? 0 },
  });
  outgoing.end(body);
  const [response] = await once(outgoing, 'response');
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  return { bytes, headers: response.headers as Record<string, string> };
}

describe('contract 08 §6.4: the TLS listener inside a stream', () => {
  it.for([undefined, 256 * 1024])(
    'carries requests and megabytes both ways, with window %s',
    async (window, context) => {
      const test = await setUp(context, { window });
      const { tls, id } = await test.tls();
      const { bytes, headers } = await ask(tls, 20 * MIB, Buffer.alloc(10 * MIB));
      expect([bytes, headers['x-received'], headers['x-remote']]).toEqual([20 * MIB, String(10 * MIB), 'undefined']);
      tls.destroy();
      await vi.waitFor(() => expect(test.made[0]?.destroyed).toBe(true));
      expect([test.closed, test.streams.size]).toEqual([[], 0]);
      expect(id).toHaveLength(22);
    },
  );

  it('closes the stream once when the server ends it', async (context) => {
    const test = await setUp(context);
    const { id } = await test.tls();
    test.sockets[0]?.end();
    await vi.waitFor(() => expect(test.closed).toEqual([id]));
    expect(test.streams.size).toBe(0);
    await vi.waitFor(() => expect(test.made[0]?.destroyed).toBe(true));
  });

  it.for(['the client closes', 'the connection is lost'])('frees everything when %s', async (how, context) => {
    const test = await setUp(context);
    const { tls } = await test.tls();
    const gone = once(test.sockets[0] as Socket, 'close');
    if (how === 'the client closes') tls.destroy();
    else test.streams.abort();
    await gone;
    await vi.waitFor(() => expect(test.made[0]?.destroyed).toBe(true));
  });

  it('ends a stream that carries no TLS', async (context) => {
    const test = await setUp(context);
    const { id, stream } = test.open();
    stream.write('GET / HTTP/1.1\r\n\r\n'.repeat(100));
    await vi.waitFor(() => expect(test.closed).toEqual([id]));
    expect(test.sockets).toEqual([]);
  });
});
