import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import type { Server as HttpServer, RequestListener } from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import { type AddressInfo, createServer, type Socket, type Server as TcpServer } from 'node:net';
import { listen } from 'listhen';
import { isLoopbackAddress } from '../../../lib/access/peer.ts';
import { RelayError } from '../../../lib/errors.ts';
import { errnoOf } from '../../../lib/host/errors.ts';
import { isWildcard, plainAddress, urlHost } from '../../../lib/kit/addresses.ts';
import { removeShutdown } from './internals.ts';

/** A certificate and its key: their files, and what was read from them. */
export interface Tls {
  files: { cert: string; key: string };
  cert: Buffer;
  key: Buffer;
}

export interface ListenOptions {
  /** An address of this machine, or a name of one. */
  host: string;
  /** 0 for any. */
  port: number;
  tls?: Tls;
}

export interface Listening {
  server: HttpServer | HttpsServer;
  address: AddressInfo;
  /** Where it can be reached: on this machine first, then from each network that it listens on. */
  urls(): Promise<string[]>;
}

/** Addresses that listhen binds as they are. It would replace any other by a wildcard. */
const ADDRESS = /^[\d.:A-Fa-f]{1,63}$/;

/** Tries to find a port, where any will do. */
const MAX_ATTEMPTS = 5;

/**
 * Listens with listhen.
 * @throws Node's listening error, such as `EADDRINUSE` or `ENOTFOUND`; RelayError for what listhen cannot bind.
 */
export async function openListener(handle: RequestListener, options: ListenOptions): Promise<Listening> {
  const { host, port } = options;
  const { address: found } = await lookup(host);
  const anyAddress = found.includes(':') ? '::' : '0.0.0.0';
  const hostname = isWildcard(found) ? anyAddress : found;
  if (!ADDRESS.test(hostname)) throw new RelayError('invalid', `the relay cannot listen on ${host}`);
  for (let attempt = 1; ; attempt++) {
    try {
      return await bind(handle, options, hostname, await freePort(hostname, port));
    } catch (error) {
      // Another process may have taken the free port meanwhile; any other will do.
      if (port !== 0 || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}

/** Addresses of loopback that a listener on `bound` does not cover (contract 01 §9.1a). */
export function missingLoopbacks(bound: string): string[] {
  // Judged by the bound address: a name, `0` or `::0` may stand for either as well.
  if (isWildcard(bound)) return bound.includes(':') ? [] : ['::1'];
  return ['127.0.0.1', '::1'].filter((loopback) => loopback !== plainAddress(bound));
}

/**
 * Listens on the addresses of loopback that a listener advertised by name does not cover (contract 01 §9.1a), and hands
 * their connections to `accept`. Another user of this machine could else stand in for the name.
 * @throws Node's listening error; nothing stays open then.
 */
export async function holdLoopbacks(held: AddressInfo, accept: (socket: Socket) => void): Promise<TcpServer[]> {
  const servers: TcpServer[] = [];
  try {
    for (const host of missingLoopbacks(held.address)) {
      const server = createServer({ noDelay: true }, accept);
      servers.push(server);
      server.listen({ host, port: held.port });
      await once(server, 'listening').catch((error) => {
        if (!isWithoutAddress(error)) throw error;
      });
      // One connection that cannot be accepted is no reason to end the process.
      server.on('error', () => {});
    }
    return servers;
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
}

/** True if listening failed because this machine has no such address: no IPv6, for `::1`. */
export const isWithoutAddress = (error: unknown): boolean => ['EADDRNOTAVAIL', 'EAFNOSUPPORT'].includes(errnoOf(error));

async function bind(
  handle: RequestListener,
  { host, tls }: ListenOptions,
  hostname: string,
  port: number,
): Promise<Listening> {
  const isPublic = !isLoopbackAddress(hostname);
  const listener = await orUncaught(
    listen(handle, {
      hostname,
      port,
      https: tls ? tls.files : false,
      public: isPublic,
      // Neither another port than the one that was asked for, nor a word on the console.
      isProd: true,
      isTest: true,
      showURL: false,
      open: false,
      clipboard: false,
      autoClose: false,
    }),
  ).catch((error: unknown) => {
    throw error instanceof Error && error.name === 'GetPortError' ? unusable(port) : error;
  });
  const { server } = listener;
  removeShutdown(server);
  if (tls) (server as HttpsServer).setSecureContext({ cert: tls.cert, key: tls.key, minVersion: 'TLSv1.2' });
  const address = server.address() as AddressInfo;
  if (address.port !== port) {
    server.close();
    throw unusable(port);
  }

  return {
    server,
    address,
    async urls() {
      const own = `${tls ? 'https' : 'http'}://${urlHost(isWildcard(hostname) ? '127.0.0.1' : host)}:${address.port}`;
      if (!isWildcard(hostname)) return [own];
      const found = await listener.getURLs({ extraURLs: [] });
      return [own, ...found.filter(({ type }) => type === 'network').map(({ url }) => url.replace(/\/$/, ''))];
    },
  };
}

/**
 * The port, or for 0 one that the system picks: listhen would try ports in order, as every other process does. Fails
 * with Node's own error where the address cannot be bound; listhen only says that it found no port.
 */
async function freePort(host: string, port: number): Promise<number> {
  const probe = createServer();
  probe.listen({ host, port });
  await once(probe, 'listening');
  const { port: free } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return free;
}

/** listhen passes over a free port that browsers refuse, such as that of IRC, and takes another one. */
const unusable = (port: number): RelayError =>
  new RelayError('invalid', `port ${port} belongs to another protocol, and browsers refuse it: choose another`);

/**
 * Rejects with an error that listhen leaves uncaught: that of a port which was taken since it looked. Any other uncaught
 * error ends the process, as it would without this.
 */
async function orUncaught<T>(work: Promise<T>): Promise<T> {
  let caught = (_error: Error) => {};
  const uncaught = new Promise<never>((_, reject) => {
    caught = (error) => {
      if ((error as NodeJS.ErrnoException).syscall === 'listen') return reject(error);
      process.off('uncaughtException', caught);
      if (process.listenerCount('uncaughtException') > 0) return;
      queueMicrotask(() => {
        throw error;
      });
    };
  });
  process.on('uncaughtException', caught);
  try {
    return await Promise.race([work, uncaught]);
  } finally {
    process.off('uncaughtException', caught);
  }
}
