import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import fc from 'fast-check';
import { expect, it, onTestFinished } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { sendParts } from '../../../../lib/host/node/send-parts.ts';

/** Both ends of a WebSocket of `ws`, with the connection below. */
async function openPair() {
  const http = createServer();
  const wss = new WebSocketServer({ server: http });
  await once(http.listen(0, '127.0.0.1'), 'listening');
  const connected = once(wss, 'connection');
  const client = new WebSocket(`ws://127.0.0.1:${(http.address() as AddressInfo).port}`);
  const [[response]] = await Promise.all([once(client, 'upgrade'), once(client, 'open')]);
  const [server, request] = await connected;
  onTestFinished(() => {
    client.terminate();
    http.close();
  });
  return {
    client: { socket: client, tcp: response.socket },
    server: { socket: server, tcp: request.socket },
  } as Record<'client' | 'server', { socket: WebSocket; tcp: Socket }>;
}

/** Lengths around those at which the head of a frame grows. */
const aLength = fc.oneof(fc.constantFrom(0, 1, 107, 108, 109, 125, 126, 65_517, 65_518, 65_535, 65_536), fc.nat(400));
const bytesOf = (length: number) => Buffer.alloc(length, length & 255);
const aMessage = fc.record({
  isInParts: fc.boolean(),
  head: fc.constantFrom(18, 1, 22).map(bytesOf),
  parts: fc.array(aLength.map(bytesOf), { maxLength: 4 }),
});

it.each(['client', 'server'] as const)('a %s sends messages in parts between those of `ws`, in order', async (from) => {
  const ends = await openPair();
  const { socket, tcp } = ends[from];
  const other = ends[from === 'client' ? 'server' : 'client'].socket;
  const isMasked = from === 'client';
  await fc.assert(
    fc.asyncProperty(fc.array(aMessage, { minLength: 1, maxLength: 6 }), async (messages) => {
      const expected = messages.map(({ head, parts }) => Buffer.concat([head, ...parts]));
      const received: Buffer[] = [];
      const arrived = new Promise<void>((resolve) => {
        other.on('message', (data: Buffer) => {
          received.push(data);
          if (received.length === messages.length) resolve();
        });
      });
      const sent = messages.map(
        ({ isInParts, head, parts }, index) =>
          new Promise<void>((resolve) => {
            if (isInParts) sendParts(tcp, head, parts, { isMasked, sent: resolve });
            else socket.send(expected[index] as Buffer, () => resolve());
          }),
      );
      await Promise.all([arrived, ...sent]);
      other.removeAllListeners('message');
      expect(received.length).toBe(expected.length);
      for (const [index, message] of expected.entries()) expect(message.equals(received[index] as Buffer)).toBe(true);
    }),
    { numRuns: 60 },
  );
});

it('reports a message that can no longer leave', async () => {
  const { client } = await openPair();
  client.tcp.destroy();
  await new Promise<void>((sent) => {
    sendParts(client.tcp, Buffer.from('head'), [Buffer.from('part')], { isMasked: true, sent });
  });
});
