import { readFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { onTestFinished, type TestContext } from 'vitest';
import { routeTo } from '../../../../lib/companion/link/reach.ts';
import type { PinnedRoute } from '../../../../lib/host/dial.ts';
import { createPinnedConnector } from '../../../../lib/host/node/pinned.ts';
import { createCallRelay } from '../../../../lib/host/node/relay-call.ts';
import { createTrust } from '../../../../lib/host/node/trust.ts';
import { newId, newToken } from '../../../../lib/reach/ids.ts';
import { makeIdentity } from '../../../support/certificate.ts';
import { startFakeBroker } from '../../../support/fake-broker.ts';

export const MIB = 1024 * 1024;

/** A pinned origin behind a broker, and the ways to reach it. */
export async function setup(context: TestContext) {
  const identity = await makeIdentity(context, { san: 'DNS:relay.home' });
  let open = 0;
  const received: number[] = [];
  const server = createServer({ cert: identity.cert, key: identity.key }, async (request, response) => {
    let size = 0;
    for await (const chunk of request) size += chunk.length;
    received.push(size);
    const bytes = Number(request.headers['x-bytes'] ?? 0);
    response.end(Buffer.alloc(bytes, 'x'));
  });
  server.on('secureConnection', (socket: TLSSocket) => {
    open++;
    socket.on('close', () => open--);
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const broker = await startFakeBroker(context, { port });
  const trust = createTrust([await readFile(broker.ca, 'utf8')]);
  const pinned = createPinnedConnector({ trust });
  const { pin, certDer } = identity;
  const bootstrap = { token: newToken(), expiresAt: 2e9 };
  const endpoint = {
    role: 'outbound_broker',
    url: 'wss://relay.home:9443/relay/ws',
    priority: 0,
    pinned: { pin, certDer },
    broker: { url: broker.url, hostId: newId(), bootstrap },
  };
  const route = routeTo(endpoint, null, 1) as PinnedRoute;
  const never = new AbortController().signal;
  const connect = (signal = never) => pinned.connect(endpoint.url, route, signal);
  const call = (headers: Record<string, string> = {}, body?: Uint8Array) =>
    createCallRelay(pinned)({
      socketUrl: endpoint.url,
      route,
      refuse: () => null,
      method: 'POST',
      path: '/media/upload',
      headers,
      body,
      limit: 64 * MIB,
    });
  return { broker, port, endpoint, trust, route, connect, call, received, identity, open: () => open };
}
