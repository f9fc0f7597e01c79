import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { afterAll } from 'vitest';
import { type EdgeRuntime, startEdgeRuntime } from './edge-runtime.ts';
import type { Target, TargetOptions } from './relay.ts';

/** The runtime of this test file: to start one takes longer than most cases do. */
let shared: Promise<EdgeRuntime> | undefined;
afterAll(async () => {
  await (await shared)?.stop();
});

/**
 * A fresh relay under the local edge runtime, on a port of its own. Its `restart` restarts the runtime, and with it
 * every other relay of the file.
 */
export async function startEdgeTarget({ env = {} }: TargetOptions = {}): Promise<Target> {
  shared ??= startEdgeRuntime();
  const runtime = await shared;
  const door = await openDoor(() => runtime.port);
  await runtime.configure(door.port, env);
  const url = `http://127.0.0.1:${door.port}`;
  const call = (path: string, init: RequestInit = {}, more: Record<string, string> = {}) => {
    const headers = new Headers(init.headers);
    // The runtime closes a connection whose body nobody read: the next request on it would fail.
    headers.set('connection', 'close');
    for (const [name, value] of Object.entries(more)) headers.set(name, value);
    return fetch(url + path, { ...init, headers });
  };
  const target: Target = {
    runtime: 'edge',
    url,
    wsUrl: `${url.replace('http', 'ws')}/ws`,
    agentHome: '',
    log: [],
    fetch: (path, init) => call(path, init),
    operator: (path, init) => call(path, init, { authorization: `Bearer ${runtime.operatorToken}` }),
    objects: () => runtime.objects(door.port),
    async restart() {
      await runtime.restart();
      await door.clear();
    },
    stop: door.close,
  };
  return target;
}

/** Passes connections on, from a port of its own. */
async function openDoor(to: () => number) {
  const pairs = new Map<Socket, Promise<unknown>>();
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
    const inner = connect({ port: to(), host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
    const closed = [client, inner].map((socket) => new Promise((resolve) => socket.once('close', resolve)));
    pairs.set(
      client,
      Promise.all(closed).then(() => pairs.delete(client)),
    );
    for (const [from, into] of [
      [client, inner],
      [inner, client],
    ] as const) {
      from.pipe(into);
      from.on('error', () => into.destroy());
      from.on('close', () => into.destroySoon());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const clear = async () => {
    for (const client of pairs.keys()) client.destroy();
    await Promise.all(pairs.values());
  };
  return {
    port: (server.address() as AddressInfo).port,
    /** Ends every connection there is. */
    clear,
    async close(): Promise<void> {
      server.close();
      await clear();
    },
  };
}
