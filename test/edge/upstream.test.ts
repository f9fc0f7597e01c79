import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { startEdgeTarget } from '../support/edge.ts';
import { ECHO_LIMIT } from '../support/socket-rows.ts';

type Report = Record<string, unknown>;

/** A server on loopback. `refuse` answers upgrades instead of the WebSocket server. */
async function startServer(serve: (socket: WebSocket) => void = () => {}, refuse?: string) {
  const requests: IncomingMessage[] = [];
  const bodies: string[] = [];
  const connections: Socket[] = [];
  const wss = new WebSocketServer({ noServer: true });
  const server = createServer(async (request, response) => {
    requests.push(request);
    let body = '';
    for await (const chunk of request) body += chunk;
    bodies.push(body);
    response.writeHead(201, { 'X-Answer': 'yes' }).end();
  });
  server.on('upgrade', (request, socket: Socket, head) => {
    requests.push(request);
    connections.push(socket);
    if (refuse !== undefined) socket.resume().end(refuse);
    else wss.handleUpgrade(request, socket, head, serve);
  });
  server.on('connection', (socket) => socket.on('error', () => {}));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of connections) socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, requests, bodies, connections };
}

/** A client of one of the made-up rows, with its reports in order. */
async function follow(path: string) {
  const target = await startEdgeTarget();
  const socket = new WebSocket(target.wsUrl.replace(/\/ws$/, path), { perMessageDeflate: false });
  onTestFinished(() => socket.terminate());
  const reports: Report[] = [];
  socket.on('message', (data) => reports.push(JSON.parse(String(data))));
  await once(socket, 'open');
  return {
    send: (text: string) => socket.send(text),
    reports,
    async next(): Promise<Report> {
      await expect.poll(() => reports.length).toBeGreaterThan(0);
      return reports.shift() as Report;
    },
  };
}

const dial = (host: string, scheme = 'ws') =>
  follow(`/test/dial?to=${encodeURIComponent(`${scheme}://${host}/v1?a=b`)}`);

describe('a socket from the edge to a provider', () => {
  it('is an upgrade with the headers, and carries text in order', async () => {
    const server = await startServer((socket) => socket.on('message', (data) => socket.send(`heard ${data}`)));
    const client = await dial(server.host);
    expect(await client.next()).toEqual({ open: true });
    client.send('one');
    client.send('twö');
    expect([await client.next(), await client.next()]).toEqual([{ message: 'heard one' }, { message: 'heard twö' }]);
    expect(server.requests[0]?.url).toBe('/v1?a=b');
    expect(server.requests[0]?.headers).toMatchObject({ 'x-key': 'a key' });
  });

  it('delivers what the server says at once, no binary frame, and its close', async () => {
    const server = await startServer((socket) => {
      socket.send(Buffer.from('bytes'));
      socket.send('text');
      socket.close(4001, 'done');
    });
    const client = await dial(server.host, 'http');
    const events = [await client.next(), await client.next(), await client.next()];
    expect(events).toContainEqual({ open: true });
    expect(events.filter((event) => !event.open)).toEqual([
      { message: 'text' },
      { closed: { code: 4001, reason: 'done' } },
    ]);
  });

  it.each([
    ['HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n', 401],
    ['HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n', 302],
  ])('fails with the status of a refusal, and follows no redirect: %j', async (refuse, status) => {
    const server = await startServer(() => {}, refuse);
    const client = await dial(server.host);
    expect(await client.next()).toEqual({ failed: `HTTP ${status}`, status });
    expect(server.requests).toHaveLength(1);
  });

  it('fails when nothing listens there', async () => {
    const client = await dial('127.0.0.1:1');
    expect(await client.next()).toEqual({ failed: expect.any(String) });
  });

  it('keeps messages while paused, and delivers them in order before the close', async () => {
    const server = await startServer((socket) =>
      socket.on('message', () => {
        for (const text of ['1', '2', '3']) socket.send(text);
        socket.close(1000, '');
      }),
    );
    const client = await dial(server.host);
    await client.next();
    client.send('pause');
    expect(await client.next()).toEqual({ done: 'pause' });
    client.send('go');
    client.send('pause');
    expect(await client.next()).toEqual({ done: 'pause' });
    client.send('resume');
    const after: Report[] = [];
    while (!after.some(({ closed }) => closed)) after.push(await client.next());
    expect(after.filter(({ done }) => !done)).toEqual([
      { message: '1' },
      { message: '2' },
      { message: '3' },
      { closed: { code: 1000, reason: '' } },
    ]);
  });

  it('closes with 1009 at a message that is too large, and takes the largest allowed', async () => {
    const server = await startServer((socket) => {
      socket.send('ü'.repeat(ECHO_LIMIT / 2));
      socket.send('ü'.repeat(ECHO_LIMIT / 2 + 1));
    });
    const client = await dial(server.host);
    const events = [await client.next(), await client.next(), await client.next()];
    expect(events.find(({ closed }) => closed)).toMatchObject({ closed: { code: 1009 } });
    expect(events.filter(({ message }) => message)).toEqual([{ message: 'ü'.repeat(ECHO_LIMIT / 2) }]);
  });

  it.each([
    ['close', { code: 4000, reason: 'enough' }, 4000],
    ['terminate', { code: 1006, reason: '' }, 1000],
    ['abort', { code: 1006, reason: 'aborted' }, 1000],
  ])('%s ends it once, on both sides', async (command, closed, code) => {
    let heard: number | undefined;
    const server = await startServer((socket) =>
      socket.on('close', (how) => {
        heard = how;
      }),
    );
    const client = await dial(server.host);
    await client.next();
    client.send(command);
    const events = [await client.next()];
    if (command !== 'abort') events.push(await client.next());
    expect(events).toContainEqual({ closed });
    await expect.poll(() => heard).toBe(code);
    client.send('after the end');
    expect(client.reports).toEqual([]);
  });

  it('reports a connection that breaks as 1006', async () => {
    const server = await startServer();
    const client = await dial(server.host);
    await client.next();
    server.connections[0]?.destroy();
    expect(await client.next()).toMatchObject({ closed: { code: 1006 } });
  });
});

describe('a call from the edge with a streamed body', () => {
  it('has the length that was announced, and returns headers in lower case', async () => {
    const server = await startServer();
    const client = await follow(`/test/upload?to=${encodeURIComponent(`http://${server.host}/`)}`);
    client.send('11');
    expect(await client.next()).toEqual({ status: 201, header: 'yes' });
    expect(server.bodies).toEqual(['onetwothree']);
    expect(server.requests[0]?.headers['content-length']).toBe('11');
    expect(server.requests[0]?.headers['transfer-encoding']).toBeUndefined();
  });

  it('is chunked without a length', async () => {
    const server = await startServer();
    const client = await follow(`/test/upload?to=${encodeURIComponent(`http://${server.host}/`)}`);
    client.send('');
    expect(await client.next()).toEqual({ status: 201, header: 'yes' });
    expect(server.bodies).toEqual(['onetwothree']);
    expect(server.requests[0]?.headers['transfer-encoding']).toBe('chunked');
  });
});
