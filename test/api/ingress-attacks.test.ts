import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { SIGNED_IN, startDashboard, startRecorder, TRANSPORT } from '../support/dashboard.ts';

const SESSION = { ...SIGNED_IN, 'x-svc-relay-session': 'a-session' };

/** A server in the relay's place that answers every connection's first bytes with `answer`, byte for byte. */
async function startRaw(answer: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('data', () => answer(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as { port: number }).port;
}

describe('a broken server in the place of the relay', () => {
  it.each([
    ['a status that is none', 'HTTP/1.1 099 Odd\r\ncontent-length: 2\r\n\r\n{}'],
    [
      'a switch of protocols that nobody asked for',
      'HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
    ],
    ['no HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}'],
    ['a length and chunks', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['a control character in a header', 'HTTP/1.1 200 OK\r\netag: a\x7fb\r\ncontent-length: 2\r\n\r\n{}'],
    ['a head without an end', `HTTP/1.1 200 OK\r\netag: ${'x'.repeat(100_000)}`],
  ])('gives 502 for %s', async (_name, bytes) => {
    const relayPort = await startRaw((socket) => void socket.write(bytes, 'latin1'));
    const { url } = await startDashboard({ relayPort });
    for (const path of ['/sessions', '/health']) {
      const answer = await fetch(url + TRANSPORT + path, { headers: SESSION });
      expect([answer.status, (await answer.json()).detail]).toEqual([
        502,
        expect.stringContaining('relay unreachable'),
      ]);
    }
  });

  it('may send any number of informational answers first, and trailers last', async () => {
    const bytes =
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\nset-cookie: a=b\r\n\r\n' +
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: set-cookie\r\n\r\n2\r\n{}\r\n0\r\nset-cookie: a=b\r\n\r\n';
    const relayPort = await startRaw((socket) => void socket.write(bytes));
    const { url } = await startDashboard({ relayPort });
    const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION });
    expect([answer.status, await answer.text(), answer.headers.get('set-cookie')]).toEqual([200, '{}', null]);
  });

  it('that answers more than it announced gives no more than that, and its rest to nobody', async () => {
    const bytes = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil';
    const relayPort = await startRaw((socket) => void socket.write(bytes));
    const { url } = await startDashboard({ relayPort });
    for (let count = 0; count < 3; count++) {
      const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION });
      expect([answer.status, await answer.text()]).toEqual([200, '{}']);
    }
  });
});

describe('the framing of an answer', () => {
  it.each([
    ['in one piece', ['whole body']],
    ['in pieces', ['whole', ' ', 'body']],
    ['with bytes of every value', [Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))]],
    ['over the size that is joined with its head', [Buffer.alloc(16 * 1024 + 1, 200)]],
  ])('with a length stays as it is: %s', async (_name, parts) => {
    const whole = Buffer.concat(parts.map((part) => Buffer.from(part)));
    const { port } = await startRecorder(async (_req, res) => {
      res.writeHead(200, { 'content-length': whole.length });
      for (const part of parts) await new Promise((sent) => res.write(part, sent));
      res.end();
    });
    const { url } = await startDashboard({ relayPort: port });
    const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION });
    expect(answer.headers.get('content-length')).toBe(String(whole.length));
    expect(Buffer.from(await answer.arrayBuffer())).toEqual(whole);
  });

  it.each([[304], [204]])('%i announces a body and has none', async (status) => {
    const relayPort = await startRaw(
      (socket) =>
        void socket.write(`HTTP/1.1 ${status} X\r\netag: "a"\r\n${status === 304 ? 'content-length: 9\r\n' : ''}\r\n`),
    );
    const { url } = await startDashboard({ relayPort });
    const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: { ...SESSION, 'if-none-match': '"a"' } });
    expect([answer.status, answer.headers.get('etag'), await answer.text()]).toEqual([status, '"a"', '']);
  });
});
