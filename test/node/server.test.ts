import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { createRelayServer } from '../../cli/runtime/node/server.ts';
import type { SocketTable } from '../../handlers/sockets.ts';
import { createLog } from '../../lib/log.ts';
import { WebResponse } from '../../lib/web/response.ts';
import { cleanups } from '../support/built-relay.ts';
import { connectRaw, exchange, handshakeHeaders, request } from '../support/raw-socket.ts';

const pending = cleanups();

it('an upgrade that fails costs one connection, and one line of the log', async () => {
  const log: string[] = [];
  const sockets: SocketTable = { upgrade: () => Promise.reject(new Error('no reason')), rowOf: () => undefined };
  const server = createRelayServer({
    log: createLog('DEBUG', (line) => log.push(line)),
    fetch: async () => new WebResponse('fine'),
    sockets,
  });
  const listener = createServer(server.handler).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  server.serve(listener);
  pending.push(() => server.close());
  const { port } = listener.address() as AddressInfo;
  const raw = await connectRaw(port);
  pending.push(raw.destroy);
  raw.write(request('GET', '/ws', handshakeHeaders()));
  await raw.ended();
  expect(log).toEqual([expect.stringMatching(/\[ERROR\].*upgrade failed: .*no reason/)]);
  expect((await exchange(port, request('GET', '/', { connection: 'close' }))).body).toBe('fine');
});
