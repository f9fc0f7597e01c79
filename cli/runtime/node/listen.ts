import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import { type AddressInfo, createServer, type Socket, type Server as TcpServer } from 'node:net';
import { listen } from 'listhen';
import { RelayError } from '../../../lib/errors.ts';
import { errnoOf } from '../../../lib/host/errors.ts';
import { isWildcard, plainAddress, urlHost } from '../../../lib/kit/addresses.ts';
import { deferred } from '../../../lib/kit/deferred.ts';
import { removeShutdown } from './internals.ts';

/** A certificate and its key: their paths and contents. */
export interface Tls {
  files: { cert: string; key: string };
  cert: Buffer;
  key: Buffer;
}

export interface ListenOptions {
  /** An address of this machine, or a name for one. */
  host: string;
  /** 0 for any. */
  port: number;
  tls?: Tls;
}

export type Listening = Awaited<ReturnType<typeof openListener>>;

/** Channel on which Node announces each server of the process that is about to listen. */
const LISTEN_CHANNEL = 'tracing:net.server.listen:asyncStart';

/**
 * Listens with listhen.
 * @throws Node's listening error, such as `EADDRINUSE` or `ENOTFOUND`; RelayError if listhen cannot bind the address.
 */
export async function openListener(handle: RequestListener, options: ListenOptions) {
  const { host, port, tls } = options;
  const { address: found } = await lookup(host);
  const anyAddress = found.includes(':') ? '::' : '0.0.0.0';
  const hostname = isWildcard(found) ? anyAddress : found;
  // listhen would replace an address with a zone by a wildcard.
  if (hostname.includes('%')) throw new RelayError('invalid', `the relay cannot listen on ${host}`);
  const listener = await orListenError(handle, () =>
    listen(handle, {
      hostname,
      port: port === 0 ? { port, random: true } : port,
      https: tls ? tls.files : false,
      // Prevents another port than the requested one, and console output.
      isProd: true,
      isTest: true,
      autoClose: false,
    }),
  ).catch(async (error: unknown) => {
    if (!(error instanceof Error && error.name === 'GetPortError')) throw error;
    await tryPort(hostname, port);
    throw unusable(port);
  });
  const { server } = listener;
  removeShutdown(server);
  if (tls) (server as HttpsServer).setSecureContext({ cert: tls.cert, key: tls.key, minVersion: 'TLSv1.2' });
  const address = server.address() as AddressInfo;
  if (port !== 0 && address.port !== port) {
    server.close();
    throw unusable(port);
  }

  return {
    server,
    address,

    /** Its URLs: on this machine first, then from each network that it listens on. */
    async urls(): Promise<string[]> {
      const own = `${tls ? 'https' : 'http'}://${urlHost(isWildcard(hostname) ? '127.0.0.1' : host)}:${address.port}`;
      if (!isWildcard(hostname)) return [own];
      const found = await listener.getURLs({ extraURLs: [] });
      return [own, ...found.filter(({ type }) => type === 'network').map(({ url }) => url.replace(/\/$/, ''))];
    },
  };
}

/** Loopback addresses that a listener on `bound` does not cover (contract 01 §9.1a). */
export function missingLoopbacks(bound: string): string[] {
  // Checks the bound address, since a name, `0` or `::0` may mean either.
  if (isWildcard(bound)) return bound.includes(':') ? [] : ['::1'];
  return ['127.0.0.1', '::1'].filter((loopback) => loopback !== plainAddress(bound));
}

/**
 * Listens on the loopback addresses that a listener advertised by name does not cover (contract 01 §9.1a), and passes their
 * connections to `accept`. Otherwise another user of this machine could impersonate the name.
 * @throws Node's listening error, in which case nothing stays open.
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
      // A single connection that cannot be accepted must not end the process.
      server.on('error', () => {});
    }
    return servers;
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
}

/** True if listening failed because this machine has no such address, such as `::1` without IPv6. */
export const isWithoutAddress = (error: unknown): boolean => ['EADDRNOTAVAIL', 'EAFNOSUPPORT'].includes(errnoOf(error));

/** Throws Node's own error if an address cannot be bound, since listhen only reports that it found no port. */
async function tryPort(host: string, port: number): Promise<void> {
  const probe = createServer();
  probe.listen({ host, port });
  await once(probe, 'listening');
  probe.close();
  await once(probe, 'close');
}

/** listhen skips a free port that browsers refuse, such as that of IRC, and uses another one. */
const unusable = (port: number): RelayError =>
  new RelayError('invalid', `port ${port} belongs to another protocol, and browsers refuse it: choose another`);

/**
 * Rejects with the listening error of the server that listhen makes for `handle`, if the port was taken after listhen's
 * check. listhen does not handle that error and returns the server only once it listens, so Node's channel is used to get
 * the server.
 */
async function orListenError<T>(handle: RequestListener, work: () => Promise<T>): Promise<T> {
  let server: TcpServer | undefined;
  const failure = deferred<never>();
  const announced = (message: unknown) => {
    const { server: announcedServer } = message as { server: TcpServer };
    if (announcedServer.listeners('request').includes(handle)) server = announcedServer.once('error', failure.reject);
  };
  subscribe(LISTEN_CHANNEL, announced);
  try {
    return await Promise.race([work(), failure.promise]);
  } finally {
    unsubscribe(LISTEN_CHANNEL, announced);
    server?.off('error', failure.reject);
  }
}
