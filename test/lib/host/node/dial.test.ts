import { readFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished, type TestContext } from 'vitest';
import { WebSocketServer } from 'ws';
import type { Dial, PeerKey, SocketEnd } from '../../../../lib/host/dial.ts';
import { dial, dialVerified } from '../../../../lib/host/node/dial.ts';
import { selfSigned } from '../../../support/certificate.ts';
import { closedPort } from '../../../support/closed-port.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

/** A WebSocket server with a self-signed certificate, and what it was sent. */
async function started(context: TestContext) {
  const files = await selfSigned(context, await temporaryDirectory());
  const server = createServer({ cert: await readFile(files.cert), key: await readFile(files.key) });
  const messages: string[] = [];
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (socket) => socket.on('message', (data) => messages.push(String(data))));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets.clients) socket.terminate();
    server.closeAllConnections();
    server.close();
  });
  return { url: `wss://localhost:${(server.address() as AddressInfo).port}`, messages };
}

/** Opens a socket, sends a text and closes it: the key of the other side, and how the socket ended. */
const opened = (open: Dial, url: string): Promise<{ spki: PeerKey; end: SocketEnd }> =>
  new Promise((resolve) => {
    let known: PeerKey;
    const socket = open(url, {
      open(spki) {
        known = spki;
        socket.send('hello');
        socket.close(1000);
      },
      message() {},
      alive() {},
      close: (end) => resolve({ spki: known, end }),
    });
  });

it('dial takes a self-signed certificate, and says which key it has', async (context) => {
  const { url, messages } = await started(context);
  const { spki, end } = await opened(dial, url);
  expect([spki, end.code]).toEqual([expect.stringMatching(/^[0-9a-f]{64}$/), 1000]);
  expect(messages).toEqual(['hello']);
});

it('dialVerified takes none, and sends nothing', async (context) => {
  const { url, messages } = await started(context);
  const { end } = await opened(dialVerified, url);
  expect(end).toMatchObject({ code: 1006, reason: expect.stringMatching(/self.signed/i) });
  expect(messages).toEqual([]);
});

it.each([dial, dialVerified])('reports what is no address without throwing', async (open) => {
  expect((await opened(open, 'no url')).end).toEqual({ code: 1006, reason: 'this is not the address of a relay' });
});

it('says that nothing listens there, which a restart looks like (issue 23 §2.4)', async () => {
  const { end } = await opened(dial, `ws://127.0.0.1:${await closedPort()}/ws`);
  expect(end).toEqual({ code: 1006, reason: 'nothing is listening there', isRefused: true });
});
