import { once } from 'node:events';
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  STATUS_CODES,
} from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { toNodeHandler } from 'h3/node';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import { isLoopbackAddress, limitKey } from '../../../lib/access/peer.ts';
import { describeError } from '../../../lib/errors.ts';
import { releaseChunks } from '../../../lib/host/node/release-chunks.ts';
import { sendParts } from '../../../lib/host/node/send-parts.ts';
import { canonicalAddress } from '../../../lib/kit/addresses.ts';
import { type Clock, every, systemClock } from '../../../lib/kit/clock.ts';
import type { Log } from '../../../lib/log.ts';
import { Broker, type Hosts } from '../../../lib/reach/broker/broker.ts';
import type { Effect } from '../../../lib/reach/broker/effects.ts';
import { createBrokerHttp, HEADERS, hasQueryOrCredentials } from '../../../lib/reach/broker/http.ts';
import { MAX_FRAME } from '../../../lib/reach/frames.ts';
import { CONNECT_PATH } from '../../../lib/reach/settings.ts';
import type { BrokerStore } from '../../../storage/broker.ts';
import { type ConnectionCaps, ConnectionLimits, createFront } from './front.ts';
import { createMinorCollector, tuneCollection } from './gc.ts';
import { endWithError, isHandshake } from './handshake.ts';
import { checkConnectionsEvery } from './internals.ts';
import { holdLoopbacks } from './listen.ts';

/** Milliseconds between checks for overdue sockets, and for records to remove. */
const TICK = 1_000;
const PRUNE_EVERY = 60_000;
/** Milliseconds of silence after which a socket is pinged, and until its answer counts as missed (contract 08 §7.3). */
const PING_AFTER = 30_000;
const PONG_WITHIN = 15_000;
/** The same for a host that has tried to register again. */
const PROBE_WITHIN = 5_000;
/** Milliseconds for which a closed socket may still read earlier data. */
const CLOSE_TIMEOUT = 10_000;
/** Milliseconds that clients get to answer the close of a stopping broker. */
const STOP_GRACE = 1_500;
/** Bytes on the wire that a socket may send before it has registered. */
const PRE_REGISTRATION_BYTES = 64 * 1024;
/** Milliseconds for the TLS handshake, and for the head of a request. */
const HANDSHAKE_TIMEOUT = 10_000;
/** 256 hosts with 16 streams, 512 unregistered sockets, and health probes; each address gets a share. */
const CONNECTIONS: ConnectionCaps = { maxConnections: 256 * 17 + 512 + 256, maxPerPeer: 256 };
/** Milliseconds between checks for late request heads. */
const CHECK_EVERY = 1_000;

export interface NodeBrokerOptions {
  hosts: Hosts;
  store: BrokerStore;
  /** Address and port to listen on; 0 for any port. */
  host: string;
  port: number;
  tls?: { cert: string | Buffer; key: string | Buffer };
  /** Lower-case name of the header with a client's address, trusted from a loopback peer only. */
  clientIpHeader?: string;
  log: Log;
  clock?: Clock;
}

export type NodeBroker = Awaited<ReturnType<typeof startNodeBroker>>;

/** One open WebSocket. */
interface Connection {
  socket: WebSocket;
  tcp: Socket;
  isPaused: boolean;
  /** True once the broker no longer counts it. */
  isOver: boolean;
  /** `tcp.bytesRead` at the last check, and the monotonic time of its last change or of the ping that followed. */
  read: number;
  receivedAt: number;
  pingedAt: number | null;
  /** Milliseconds for an answer. */
  pongWithin: number;
  guard: (() => void) | undefined;
}

/**
 * Starts the broker of Reach on this machine (contract 08 §7).
 * @throws Node's listening error, such as `EADDRINUSE`, in which case nothing stays open.
 */
export async function startNodeBroker(options: NodeBrokerOptions) {
  tuneCollection();
  const { store, hosts, log, clock = systemClock } = options;
  const adapter = new BrokerAdapter(new Broker({ clock, hosts, stored: await store.all() }), options, clock);
  const server = createServer(options, adapter);
  const limits = new ConnectionLimits(CONNECTIONS);
  const front = createFront(server, {
    limits,
    allowHalfOpen: !options.tls,
    // A proxy's own connections belong to all of its clients, which are counted by their upgrades.
    keyOf: (address) => (options.clientIpHeader && isLoopbackAddress(address) ? null : limitKey(address)),
  });
  let others: Server[] = [];
  try {
    front.listen({ host: options.host, port: options.port });
    await once(front, 'listening');
    checkConnectionsEvery(server, CHECK_EVERY);
    // Reports its own address by the name that it was given, if any.
    const accept = (socket: Socket) => {
      socket.allowHalfOpen = !options.tls;
      front.emit('connection', socket);
    };
    if (canonicalAddress(options.host) === null) others = await holdLoopbacks(front.address() as AddressInfo, accept);
  } catch (error) {
    front.close();
    server.close();
    store.close();
    throw error;
  }
  const failed = (error: unknown) => log.error(describeError(error));
  const stopTicking = [
    every(clock, TICK, () => adapter.tick(), failed),
    every(clock, PRUNE_EVERY, () => adapter.run(adapter.broker.prune()), failed),
  ];
  adapter.run(adapter.broker.pending());
  return {
    address: front.address() as AddressInfo,

    /** Replaces the list of hosts and, with TLS, the certificate. */
    reload(next: Hosts, tls?: NodeBrokerOptions['tls']): void {
      if (tls) (server as HttpsServer).setSecureContext({ ...tls, minVersion: 'TLSv1.2' });
      adapter.run(adapter.broker.reload(next));
    },

    /** Closes every socket with 1001, then the listener and the store. */
    async stop(): Promise<void> {
      for (const stop of stopTicking) stop();
      const closed = new Promise<void>((resolve) => front.close(() => resolve()));
      for (const other of others) other.close();
      await adapter.stop();
      server.close();
      for (const socket of limits.open) socket.destroy();
      await closed;
      store.close();
    },
  };
}

function createServer({ tls }: NodeBrokerOptions, adapter: BrokerAdapter): HttpServer | HttpsServer {
  const timeouts = { headersTimeout: HANDSHAKE_TIMEOUT, requestTimeout: HANDSHAKE_TIMEOUT, keepAliveTimeout: 5_000 };
  const server = tls
    ? createHttpsServer({
        ...timeouts,
        ...tls,
        minVersion: 'TLSv1.2',
        ALPNProtocols: ['http/1.1'],
        handshakeTimeout: HANDSHAKE_TIMEOUT,
      })
    : createHttpServer(timeouts);
  server.on('request', toNodeHandler(createBrokerHttp({ counts: () => adapter.broker.counts() })));
  server.on('upgrade', (request, socket, head) => adapter.upgrade(request, socket, head));
  return server;
}

/** Runs the effects of the broker on the sockets of `ws`. */
class BrokerAdapter {
  readonly broker: Broker<Connection>;
  readonly #options: NodeBrokerOptions;
  readonly #clock: Clock;
  readonly #connections = new Set<Connection>();
  readonly #carried = createMinorCollector();
  /** Clients of a proxy on loopback, by the address in its header. */
  readonly #proxied = new ConnectionLimits(CONNECTIONS);
  readonly #webSockets = new WebSocketServer({
    noServer: true,
    // Larger than any frame, so that the broker answers a frame that is too large with its own code.
    maxPayload: 2 * MAX_FRAME,
    maxFragments: 4096,
    maxBufferedChunks: 65_536,
    perMessageDeflate: false,
    clientTracking: false,
    closeTimeout: CLOSE_TIMEOUT,
  } as object);

  constructor(broker: Broker<Connection>, options: NodeBrokerOptions, clock: Clock) {
    this.broker = broker;
    this.#options = options;
    this.#clock = clock;
  }

  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    const tcp = stream as Socket;
    tcp.on('error', ignore);
    const source = this.#sourceOf(request, tcp);
    const status = this.#refusal(request, tcp, source);
    if (status === undefined) {
      this.#webSockets.handleUpgrade(request, tcp, head, (socket) => this.#open(socket, tcp, source));
      return;
    }
    tcp.resume();
    endWithError(tcp, status, (STATUS_CODES[status] as string).toLowerCase(), HEADERS);
  }

  #refusal(request: IncomingMessage, tcp: Socket, source: string): number | undefined {
    const { url = '', headers } = request;
    if (url.split('?')[0] !== CONNECT_PATH) return 404;
    if (hasQueryOrCredentials(url, headers.authorization) || !isHandshake(request)) return 400;
    if (this.#proxyHeader(tcp) && !this.#proxied.hold(tcp, source)) return 429;
    return this.broker.admits(source) ? undefined : 429;
  }

  /** Name of the header with the address of this connection's client. */
  #proxyHeader({ remoteAddress = null }: { remoteAddress?: string | null }): string | undefined {
    return isLoopbackAddress(remoteAddress) ? this.#options.clientIpHeader : undefined;
  }

  #sourceOf(request: IncomingMessage, tcp: Socket): string {
    const name = this.#proxyHeader(tcp);
    const value = name ? request.headers[name] : undefined;
    const last = String(value ?? '')
      .split(',')
      .at(-1)
      ?.trim();
    return limitKey(last ? last.slice(0, 64) : (tcp.remoteAddress ?? null));
  }

  #open(socket: WebSocket, tcp: Socket, source: string): void {
    const receivedAt = this.#clock.monotonic();
    const connection: Connection = {
      socket,
      tcp,
      isPaused: false,
      isOver: false,
      read: tcp.bytesRead,
      receivedAt,
      pingedAt: null,
      pongWithin: PONG_WITHIN,
      guard: undefined,
    };
    this.#connections.add(connection);
    this.#guard(connection);
    releaseChunks(socket);
    socket.on('message', (data: RawData, isBinary: boolean) => {
      const bytes = data as Buffer;
      this.#event(connection, () =>
        isBinary ? this.broker.binary(connection, bytes) : this.broker.text(connection, bytes.toString()),
      );
      this.#carried(bytes.length);
    });
    socket.on('error', ignore);
    socket.on('close', () => {
      this.#connections.delete(connection);
      this.#event(connection, () => this.broker.closed(connection));
      connection.isOver = true;
    });
    this.run(this.broker.opened(connection, source));
  }

  /** Refuses a socket that sends much before it has registered, since the broker counts only complete messages. */
  #guard(connection: Connection): void {
    const { tcp } = connection;
    const start = tcp.bytesRead;
    connection.guard = () => {
      if (tcp.bytesRead - start <= PRE_REGISTRATION_BYTES) return;
      this.#release(connection);
      this.#event(connection, () => this.broker.binary(connection, new Uint8Array()));
    };
    tcp.on('data', connection.guard);
  }

  #release(connection: Connection): void {
    if (connection.guard) connection.tcp.off('data', connection.guard);
    connection.guard = undefined;
  }

  #event(connection: Connection, event: () => Effect<Connection>[]): void {
    if (connection.isOver) return;
    this.run(event());
    if (connection.guard && this.broker.isRegistered(connection)) this.#release(connection);
  }

  run(effects: Effect<Connection>[]): void {
    for (const effect of effects) {
      if (effect.do === 'log') this.#options.log[effect.level](effect.text);
      else if (effect.do === 'save') void this.#save(effect);
      else if (effect.do === 'send') this.#send(effect.socket, effect.data, effect.head);
      else if (effect.do === 'close') this.#close(effect.socket, effect.code);
      else if (effect.do === 'probe') this.#probe(effect.socket);
      else this.#setPaused(effect.socket, effect.do === 'pause');
    }
  }

  #send(connection: Connection, data: string | Uint8Array, head?: Uint8Array): void {
    const { socket, tcp } = connection;
    const length = data.length + (head?.length ?? 0);
    const sent = () => this.#event(connection, () => this.broker.sent(connection, length));
    if (head && typeof data !== 'string' && socket.readyState === socket.OPEN) sendParts(tcp, head, [data], { sent });
    else socket.send(data, { binary: typeof data !== 'string' }, sent);
  }

  #setPaused(connection: Connection, paused: boolean): void {
    connection.isPaused = paused;
    if (paused) connection.socket.pause();
    else connection.socket.resume();
    connection.receivedAt = this.#clock.monotonic();
  }

  #close(connection: Connection, code: number): void {
    connection.isOver = true;
    this.#release(connection);
    // The answer to the close must be read.
    if (connection.isPaused) connection.socket.resume();
    connection.socket.close(code);
  }

  async #save({ changes, id }: Extract<Effect<Connection>, { do: 'save' }>): Promise<void> {
    let ok = true;
    try {
      await this.#options.store.write(changes);
    } catch (error) {
      ok = false;
      this.#options.log.error(`the state could not be stored: ${describeError(error)}`);
    }
    this.run(this.broker.saved(id, ok));
  }

  tick(): void {
    this.run(this.broker.tick());
    for (const connection of this.#connections) this.#checkLife(connection);
  }

  /** Pings a silent socket, and drops one that does not answer. A paused one is not read, so it is not pinged. */
  #checkLife(connection: Connection): void {
    const { socket, tcp, isPaused, isOver, pingedAt, pongWithin } = connection;
    if (isOver || isPaused) return;
    const now = this.#clock.monotonic();
    if (tcp.bytesRead !== connection.read) {
      connection.read = tcp.bytesRead;
      connection.receivedAt = now;
      connection.pingedAt = null;
    } else if (pingedAt !== null && now - pingedAt >= pongWithin) socket.terminate();
    else if (pingedAt === null && now - connection.receivedAt >= PING_AFTER) this.#ping(connection, PONG_WITHIN);
  }

  #ping(connection: Connection, pongWithin: number): void {
    Object.assign(connection, { read: connection.tcp.bytesRead, pingedAt: this.#clock.monotonic(), pongWithin });
    connection.socket.ping();
  }

  /** Further attempts to register do not extend it. */
  #probe(connection: Connection): void {
    if (connection.isOver || connection.isPaused) return;
    if (connection.pingedAt === null || connection.pongWithin > PROBE_WITHIN) this.#ping(connection, PROBE_WITHIN);
  }

  async stop(): Promise<void> {
    const open = [...this.#connections];
    for (const connection of open) this.#close(connection, 1001);
    const closed = open.map(({ socket }) => new Promise<void>((resolve) => socket.once('close', () => resolve())));
    const graceOver = new Promise<void>((resolve) => void setTimeout(resolve, STOP_GRACE).unref());
    await Promise.race([Promise.all(closed), graceOver]);
    for (const { socket } of open) socket.terminate();
  }
}

const ignore = () => {};
