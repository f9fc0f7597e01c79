import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { onTestFinished } from 'vitest';

/** A local port that nothing listens on, nor can: until the test is over, a connection has it as its own end. */
export async function closedPort(): Promise<number> {
  const server = createServer((held) => held.resume()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  for (;;) {
    // Node lets others listen on a port that it has chosen itself (SO_REUSEADDR), but not on one that the system has.
    const holder = connect((server.address() as AddressInfo).port, '127.0.0.1');
    onTestFinished(() => void holder.destroy());
    await once(holder, 'connect');
    const port = holder.localPort as number;
    if (process.platform !== 'linux' || (await isGuarded(port))) return port;
  }
}

/**
 * Listens on the port at another loopback address. Linux may give a connection the very port it goes to, which then connects
 * it to itself, but never one that something listens on.
 */
async function isGuarded(port: number): Promise<boolean> {
  const guard = createServer();
  onTestFinished(() => void guard.close());
  return new Promise((resolve) =>
    guard.on('error', () => resolve(false)).listen(port, '127.0.0.2', () => resolve(true)),
  );
}
