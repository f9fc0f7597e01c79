import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/**
 * A local port that nothing listens on. A connection occupies it until the test is over, so nothing can. It is not one of those
 * that the system gives to connections by itself: one of some 28,000 would get the very port it connects to, and be
 * connected to itself.
 */
export async function closedPort(): Promise<number> {
  const server = createServer((held) => held.resume()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  let holder: Socket | undefined;
  onTestFinished(() => {
    holder?.destroy();
    server.close();
  });
  for (;;) {
    const localPort = 20_000 + Math.floor(Math.random() * 10_000);
    holder = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.1', localPort });
    try {
      await once(holder, 'connect');
      return localPort;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
  }
}
