import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { createBrowserDial } from '../../handlers/web/app/dial.ts';
import { firstSocketKey, keepEarlySocket, storeFirstSocket } from '../../handlers/web/app/first-socket.ts';
import type { Pairing } from '../../lib/companion/link/settings.ts';
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

/** A relay that accepts sockets, and the state of each that it has accepted. */
async function openRelay() {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  const accepted: WebSocket[] = [];
  server.on('connection', (socket) => accepted.push(socket));
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => {
    for (const socket of accepted) socket.terminate();
    server.close();
  });
  return { url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/ws`, accepted };
}

describe('the socket that a page opens before its app has arrived', () => {
  const openEarly = (url: string): globalThis.WebSocket => {
    vi.stubGlobal('WebSocket', BrowserSocket);
    onTestFinished(() => void vi.unstubAllGlobals());
    const socket = new globalThis.WebSocket(url);
    keepEarlySocket(socket);
    return socket;
  };
  const dialed = (url: string) =>
    new Promise<'open' | SocketEnd>((resolve) => {
      createBrowserDial(() => {})(url, { open: () => resolve('open'), message() {}, alive() {}, close: resolve });
    });

  it.each(['open', 'still connecting'])('is the one that the link uses, once: %s', async (state) => {
    const { url, accepted } = await openRelay();
    const early = openEarly(url);
    if (state === 'open') await vi.waitFor(() => expect(early.readyState).toBe(WebSocket.OPEN));
    expect(await dialed(url)).toBe('open');
    await vi.waitFor(() => expect(accepted).toHaveLength(1));
    expect(await dialed(url)).toBe('open');
    await vi.waitFor(() => expect(accepted).toHaveLength(2));
    expect(early.readyState).toBe(WebSocket.OPEN);
  });

  it('is closed where the link goes elsewhere, and replaced after it has failed', async () => {
    const [one, other] = [await openRelay(), await openRelay()];
    const early = openEarly(one.url);
    await vi.waitFor(() => expect(early.readyState).toBe(WebSocket.OPEN));
    expect(await dialed(other.url)).toBe('open');
    await vi.waitFor(() => expect(early.readyState).toBe(WebSocket.CLOSED));

    const ended = openEarly(one.url);
    await vi.waitFor(() => expect(one.accepted).toHaveLength(2));
    one.accepted[1]?.terminate();
    await vi.waitFor(() => expect(ended.readyState).toBe(WebSocket.CLOSED));
    expect(await dialed(one.url)).toBe('open');
    expect(one.accepted).toHaveLength(3);
  });

  it('goes where the link would go first, as long as there is a pairing', () => {
    const kept = new Map<string, string>();
    vi.stubGlobal('localStorage', {
      getItem: (key: string) => kept.get(key) ?? null,
      setItem: (key: string, text: string) => void kept.set(key, text),
      removeItem: (key: string) => void kept.delete(key),
    });
    onTestFinished(() => void vi.unstubAllGlobals());
    const base = 'https://relay.example/below/';
    const key = firstSocketKey(new URL(base));
    const [lan, own, edge] = ['wss://192.0.2.1/ws', 'wss://relay.example/below/ws', 'wss://edge.example/ws'];
    const pairing = (changes: Partial<Pairing>) => ({ endpoints: [], ...changes }) as unknown as Pairing;
    const endpoints = [lan, own].map((url, priority) => ({ role: 'web', url, priority }));
    storeFirstSocket(base, pairing({ endpoints }));
    expect([...kept]).toEqual([[key, lan]]);
    storeFirstSocket(base, pairing({ endpoints, last_good: own }));
    expect(kept.get(key)).toBe(own);
    // Home is tried before its mailbox.
    storeFirstSocket(base, pairing({ endpoints, last_good: edge, mailbox: { url: edge } }));
    expect(kept.get(key)).toBe(lan);
    storeFirstSocket(base, pairing({ mailbox: { url: edge } }));
    expect(kept.get(key)).toBe(edge);
    storeFirstSocket(base, null);
    expect([...kept]).toEqual([]);
  });
});
