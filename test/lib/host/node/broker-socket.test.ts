import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished, type TestContext, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { readTrust } from '../../../../lib/host/node/trust.ts';
import { createNodeDialBroker } from '../../../../lib/host/node/upstream-socket.ts';
import { MAX_FRAME } from '../../../../lib/reach/frames.ts';
import { privateAuthority } from '../../../support/certificate.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

/** A broker with the certificate of a private authority for `localhost`. */
async function startBroker(context: TestContext, serve: (socket: WebSocket) => void = () => {}) {
  const { ca, cert, key } = await privateAuthority(context, await temporaryDirectory());
  const server = createServer({ cert: await readFile(cert), key: await readFile(key) });
  const wss = new WebSocketServer({ server, maxPayload: MAX_FRAME });
  const offered: unknown[] = [];
  const received: Buffer[] = [];
  wss.on('connection', (socket, request) => {
    offered.push(request.headers['sec-websocket-extensions']);
    request.socket.prependListener('data', (chunk: Buffer) => void received.push(chunk));
    socket.on('error', () => {});
    serve(socket);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => {
    for (const socket of wss.clients) socket.terminate();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const trust = await readTrust({ nodeExtraCaCerts: ca }, () => {});
  const path = `${port}/v1/connect`;
  return { url: `wss://localhost:${path}`, byAddress: `wss://127.0.0.1:${path}`, trust, offered, received };
}

async function dial(url: string, options: Parameters<typeof createNodeDialBroker>[0]) {
  const [texts, messages, ends]: [string[], Uint8Array[], unknown[]] = [[], [], []];
  const socket = await createNodeDialBroker(options)(
    { url, headers: {}, signal: new AbortController().signal, maxMessage: MAX_FRAME, pingInterval: 30_000 },
    { message: (text) => texts.push(text), bytes: (bytes) => messages.push(bytes), closed: (end) => ends.push(end) },
  );
  onTestFinished(() => socket.terminate());
  return { socket, texts, messages, ends };
}

it('contract 08 §6.4: carries text and binary messages up to 1 MiB + 18 bytes, without compression', async (context) => {
  const broker = await startBroker(context, (socket) =>
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
  );
  const { socket, texts, messages, ends } = await dial(broker.url, broker);
  const large = Buffer.alloc(MAX_FRAME, 7);
  let sent = 0;
  socket.send('text');
  socket.sendBytes(large.subarray(0, 18), [large.subarray(18, 1000), large.subarray(1000)], () => sent++);
  await vi.waitFor(() => expect([texts, messages.length, sent]).toEqual([['text'], 1, 1]));
  expect(large.equals(messages[0] as Uint8Array)).toBe(true);
  expect(broker.offered).toEqual([undefined]);
  socket.close(1001, '');
  await vi.waitFor(() => expect(ends).toHaveLength(1));
  socket.sendBytes(large, [], () => sent++);
  expect(sent).toBe(2);
});

it('masks by zeros, as RFC 6455 §5.2 wants a mask and TLS makes it needless', async (context) => {
  const broker = await startBroker(context);
  const { socket } = await dial(broker.url, broker);
  socket.send('text');
  const frame = Buffer.from([0x81, 0x84, 0, 0, 0, 0, ...Buffer.from('text')]);
  await vi.waitFor(() => expect(Buffer.concat(broker.received)).toEqual(frame));
});

it('contract 08 §6.4: ends with 1009 over a larger message', async (context) => {
  const broker = await startBroker(context, (socket) => socket.send(Buffer.alloc(MAX_FRAME + 1)));
  const { ends } = await dial(broker.url, broker);
  await vi.waitFor(() => expect(ends).toEqual([expect.objectContaining({ code: 1009 })]));
});

it('contract 08 §6.1: verifies the broker, whatever the environment says', async (context) => {
  const broker = await startBroker(context);
  vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
  onTestFinished(() => void vi.unstubAllEnvs());
  await expect(dial(broker.url, {})).rejects.toThrow(/certificate/);
  await expect(dial(broker.byAddress, broker)).rejects.toThrow(/altnames|certificate/);
  await dial(broker.url, broker);
});
