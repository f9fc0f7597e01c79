import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { onTestFinished } from 'vitest';

/** A local port that nothing listens on. A connection occupies it until the test is over, so nothing can. */
export async function closedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const holder = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [held] = await once(server, 'connection');
  onTestFinished(() => {
    holder.destroy();
    held.destroy();
    server.close();
  });
  return held.remotePort;
}
