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

it.each<[string, Response | Error, Partial<SocketEnd>, number[]]>([
  ['nothing answers at all', new TypeError('Failed to fetch'), { code: 1006, isRefused: true }, []],
  [
    'a proxy answers whose relay is away',
    new Response(null, { status: 503, headers: { 'retry-after': '9' } }),
    { status: 503 },
    [],
  ],
  [
    'the relay answers otherwise',
    new Response(null, { status: 426 }),
    { reason: 'the relay refused the connection' },
    [],
  ],
  [
    'there were too many attempts',
    new Response(null, { status: 426, headers: { 'retry-after': '9' } }),
    { status: 429 },
    [9],
  ],
])('tells a relay that restarts from one that refuses (issue 23 §2.4): %s', async (_, answer, expected, waits) => {
  vi.stubGlobal('WebSocket', BrowserSocket);
  onTestFinished(() => void vi.unstubAllGlobals());
  const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(async () => {
    if (answer instanceof Error) throw answer;
    return answer;
  });
  onTestFinished(() => fetched.mockRestore());
  const limited: number[] = [];
  const end = await new Promise<SocketEnd>((resolve) => {
    const url = 'ws://127.0.0.1:1/ws';
    createBrowserDial((seconds) => limited.push(seconds))(url, { open() {}, message() {}, alive() {}, close: resolve });
  });
  expect(end).toMatchObject(expected);
  expect([end.isRefused ?? false, limited]).toEqual([expected.isRefused ?? false, waits]);
});
