import { readFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { onTestFinished, type TestContext } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { newId } from '../../lib/reach/ids.ts';
import { encodeMessage, parseRegister, type Register } from '../../lib/reach/messages.ts';
import { privateAuthority } from './certificate.ts';
import { temporaryDirectory } from './temp.ts';

/** Reaction of the broker to a registered client. Without one, it connects the client as it should. */
export type Behaviour = (client: WebSocket, register: Register) => void;

/**
 * The client's side of a broker, with a certificate of its own authority: checks registrations, and pipes each client
 * to the port of a TLS server. The real one is in `lib/reach/broker`.
 */
export async function startFakeBroker(context: TestContext, target: { port: number }) {
  const files = await privateAuthority(context, await temporaryDirectory(), 'broker');
  const [cert, key] = await Promise.all([readFile(files.cert), readFile(files.key)]);
  const server = createServer({ cert, key });
  const sockets = new WebSocketServer({ server, path: '/v1/connect', maxPayload: 1024 * 1024 });
  const registered: Register[] = [];
  const problems: string[] = [];
  const piped = new Set<Socket>();
  let behaviour: Behaviour | null = null;
  /** Largest message of a client. */
  let largest = 0;

  sockets.on('connection', (client, request) => {
    if (request.headers.authorization !== undefined) problems.push('authorization on the upgrade');
    client.once('message', (data, isBinary) => {
      const register = parseRegister(String(data));
      if (isBinary || typeof register === 'string') {
        problems.push(`registration: ${String(register)}`);
        return client.close(1008);
      }
      registered.push(register);
      if (behaviour) behaviour(client, register);
      else pipe(client);
    });
    client.on('error', () => {});
  });

  function pipe(client: WebSocket): void {
    const upstream = connect(target.port, '127.0.0.1');
    piped.add(upstream);
    client.send(encodeMessage({ type: 'matched', stream_id: newId() }));
    client.on('message', (data: Buffer, isBinary) => {
      if (!isBinary || data.length === 0) problems.push('a client sent what is no data');
      largest = Math.max(largest, data.length);
      if (!upstream.write(data)) client.pause();
    });
    upstream.on('drain', () => client.resume());
    upstream.on('data', (bytes) => {
      upstream.pause();
      client.send(bytes, () => upstream.resume());
    });
    upstream.on('close', () => {
      piped.delete(upstream);
      client.close(1000);
    });
    upstream.on('error', () => {});
    client.on('close', () => upstream.destroy());
  }

  await new Promise<void>((resolve) => server.listen(0, 'localhost', resolve));
  const close = () => {
    for (const client of sockets.clients) client.terminate();
    for (const socket of piped) socket.destroy();
    server.closeAllConnections();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  };
  onTestFinished(close);
  const { port } = server.address() as AddressInfo;
  return {
    /** File of its authority. */
    ca: files.ca,
    url: `wss://localhost:${port}/v1/connect`,
    registered,
    problems,
    pipe,
    close,
    get tunnels() {
      return piped.size;
    },
    get largest() {
      return largest;
    },
    behave(next: Behaviour | null) {
      behaviour = next;
    },
    /** Drops every client. */
    drop() {
      for (const client of sockets.clients) client.terminate();
    },
  };
}
