import { type AddressInfo, createServer } from 'node:net';
import { expect, it, onTestFinished, vi } from 'vitest';
import { WebSocket } from 'ws';
import { createBrowserDial } from '../../handlers/web/app/dial.ts';
import type { SocketEnd } from '../../lib/host/dial.ts';

/** The socket of a browser throws nothing when nobody listens to its errors. */
class BrowserSocket extends WebSocket {
  constructor(url: string) {
    super(url);
    this.on('error', () => {});
  }
}

/** A relay that reads handshakes and answers none, and the first line of each request it read. */
async function silentRelay() {
  const requests: string[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => requests.push(String(data).split('\r\n', 1)[0] ?? ''));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return { url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/ws`, requests };
}

it('asks nobody why a connection failed that the page itself closed while it was made', async () => {
  vi.stubGlobal('WebSocket', BrowserSocket);
  onTestFinished(() => void vi.unstubAllGlobals());
  const fetched = vi.spyOn(globalThis, 'fetch');
  const { url, requests } = await silentRelay();
  const ends: SocketEnd[] = [];
  const socket = createBrowserDial(() => {})(url, {
    open: () => {},
    message() {},
    alive() {},
    close: (end) => ends.push(end),
  });
  await vi.waitFor(() => expect(requests).toEqual(['GET /ws HTTP/1.1']));
  socket.close(1000, 'signed out');
  await vi.waitFor(() => expect(ends).toMatchObject([{ code: 1006 }]));
  expect(fetched).not.toHaveBeenCalled();
});
