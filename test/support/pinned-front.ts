import { request } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { Duplex } from 'node:stream';
import { onTestFinished, type TestContext } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { type Identity, makeIdentity } from './certificate.ts';
import { freePort } from './process.ts';

export interface PinnedFrontOptions {
  /** Port of the relay behind it. */
  port: number;
  identity?: Identity;
  /** `route_credential` for every `auth.ok`. */
  credential?(): unknown;
}

/** The `/relay` part of a pinned origin in front of a relay's plain port, for tests of clients alone. */
export async function startPinnedFront(context: TestContext, options: PinnedFrontOptions) {
  const identity = options.identity ?? (await makeIdentity(context, { san: 'IP:127.0.0.1' }));
  const paths: string[] = [];
  const connections = new Set<Duplex>();
  const port = await freePort();
  let server: Server;

  async function listen(): Promise<void> {
    server = createServer({ cert: identity.cert, key: identity.key }, (incoming, response) => {
      paths.push(`${incoming.method} ${incoming.url}`);
      const path = incoming.url?.replace(/^\/relay(?=\/)/, '');
      const { method, headers } = incoming;
      const outgoing = request({ host: '127.0.0.1', port: options.port, path, method, headers }, (answer) => {
        response.writeHead(answer.statusCode as number, answer.headers);
        answer.pipe(response);
      });
      outgoing.on('error', () => response.destroy());
      incoming.pipe(outgoing);
    });
    server.on('tlsClientError', () => {});
    server.on('connection', (socket) => {
      connections.add(socket);
      socket.on('close', () => connections.delete(socket));
    });
    const sockets = new WebSocketServer({ server, path: '/relay/ws', maxPayload: 40 * 1024 * 1024 });
    sockets.on('connection', (client) => {
      const upstream = new WebSocket(`ws://127.0.0.1:${options.port}/ws`);
      const early: string[] = [];
      client.on('message', (data) => {
        if (upstream.readyState === WebSocket.OPEN) upstream.send(String(data));
        else early.push(String(data));
      });
      upstream.on('open', () => {
        for (const text of early.splice(0)) upstream.send(text);
      });
      upstream.on('message', (data) => client.send(withCredential(String(data))));
      upstream.on('close', (code, reason) => client.close(code === 1006 ? 1011 : code, String(reason)));
      upstream.on('error', () => {});
      client.on('close', () => upstream.terminate());
      client.on('error', () => {});
    });
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  }

  function withCredential(text: string): string {
    const credential = options.credential?.();
    if (!credential || !text.includes('"auth.ok"')) return text;
    const message = JSON.parse(text);
    return JSON.stringify({ ...message, payload: { ...message.payload, route_credential: credential } });
  }

  /** Stops listening and drops every connection. */
  function stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of connections) socket.destroy();
    return closed;
  }

  await listen();
  onTestFinished(() => stop().catch(() => {}));
  return {
    identity,
    port,
    paths,
    /** The `proxy` member of its candidates (contract 08 §6.2). */
    proxy: (host = '127.0.0.1', at = port) => ({
      url: `https://${host}:${at}`,
      transport_hint: 'https',
      pin_sha256: identity.pin,
      cert_der: identity.certDer,
      surfaces: ['relay', 'api', 'dashboard'],
    }),
    stop,
    restart: listen,
  };
}
