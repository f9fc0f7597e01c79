import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { createLocalLink } from '../../cli/runtime/node/local-link.ts';

it('takes several TLS records of a body before their sender has to wait', async () => {
  const server = createServer((request, response) => void request.resume().once('end', () => response.end()));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const link = createLocalLink({ host: '127.0.0.1', port: () => port, connectTimeout: 5_000, idle: 5_000 });
  onTestFinished(() => {
    link.close();
    server.close();
  });
  const request = link.request(
    { method: 'POST', path: '/', headers: { 'content-length': 80 * 1024 }, keepAlive: false },
    (response) => void response.resume(),
  );
  const answered = once(request, 'response');
  request.flushHeaders();
  const [socket] = await once(request, 'socket');
  socket.cork();
  const record = Buffer.alloc(16 * 1024);
  const takesMore = Array.from({ length: 5 }, () => request.write(record));
  expect(takesMore).toEqual([true, true, true, false, false]);
  socket.uncork();
  request.end();
  await answered;
});
