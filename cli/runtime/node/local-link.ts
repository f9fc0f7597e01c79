import {
  Agent,
  type ClientRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type RequestOptions,
  request,
} from 'node:http';
import { connect, type Socket } from 'node:net';
import type { LoopbackGuard } from '../../../lib/host/node/loopback-guard.ts';

const MAX_IDLE = 64;
/**
 * Bytes of a body that wait to be sent, above which its sender waits: what newer versions of Node use. With the 16 KiB of Node 20
 * every TLS record stops the reading of the next, and costs a write of its own.
 */
const MAX_UNSENT = 64 * 1024;

/** A connection was not established in time. */
export class ConnectTimeout extends Error {}

/** Nothing was received or sent on a connection for too long. */
export class IdleTimeout extends Error {}

export interface LocalLinkOptions {
  /** An address or name of this host. */
  host: string;
  /** Called for each request, since it may change. */
  port(): number;
  /** Milliseconds, including TLS. */
  connectTimeout: number;
  /**
   * Milliseconds of silence after which a connection, in use or kept, fails with IdleTimeout: less than the server keeps
   * one. A listener per request would cost a tenth of a short one.
   */
  idle: number;
  /** Opens a connection in another way than plain TCP. */
  open?(target: ConnectTarget): Opening | Promise<Opening>;
  /** Checks each connection before anything is sent. Default: all pass. */
  guard?: LoopbackGuard;
}

export interface ConnectTarget {
  host: string;
  port: number;
  noDelay: true;
  timeout: number;
  writableHighWaterMark: number;
}

/** A connection that is being established. */
export interface Opening {
  socket: Socket;
  /** The event that reports that it is ready. */
  ready: 'connect' | 'secureConnect';
  /** Checks a connection that is ready, before anything is sent. Returns why it must not be used. */
  check?(): Error | undefined | Promise<Error | undefined>;
}

export interface LocalRequest {
  method: string;
  /** Path and query. */
  path: string;
  /** An object, or alternating names and values that include `host`. */
  headers: OutgoingHttpHeaders | readonly string[];
  /** Reuses and keeps an idle connection, which may turn out to be closed. */
  keepAlive: boolean;
}

/** Connections to a single server, which need no names to distinguish them, and have their own timeout. */
class LinkAgent extends Agent {
  constructor(keepAlive: boolean, connectChecked: () => Promise<Socket>) {
    super({ keepAlive, maxFreeSockets: MAX_IDLE });
    // Node's agent gets a connection from here when it is ready, and never sends on an unchecked one.
    Object.assign(this, {
      createConnection(_options: unknown, done: (error: Error | null, socket?: Socket) => void) {
        connectChecked().then(
          (socket) => done(null, socket),
          (error) => done(error),
        );
      },
    });
  }

  override getName(): string {
    return '';
  }

  override keepSocketAlive(socket: Socket): boolean {
    socket.unref();
    return true;
  }
}

export type LocalLink = ReturnType<typeof createLocalLink>;

/** Connections to a server on this host. */
export function createLocalLink(options: LocalLinkOptions) {
  const { host, port, connectTimeout, idle, open = openPlain, guard } = options;
  async function connectChecked(): Promise<Socket> {
    const target = { host, port: port(), noDelay: true, timeout: idle, writableHighWaterMark: MAX_UNSENT } as const;
    const opening = open(target);
    const { socket, ready, check } = opening instanceof Promise ? await opening : opening;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => socket.destroy(new ConnectTimeout('timed out while connecting')), connectTimeout);
      socket.once('error', reject);
      socket.once('close', () => {
        clearTimeout(timer);
        reject(new Error('connection closed'));
      });
      socket.once(ready, async () => {
        const refusal = (await check?.()) ?? (await guard?.(socket));
        clearTimeout(timer);
        if (refusal) socket.destroy(refusal);
        else if (!socket.destroyed) {
          socket.off('error', reject);
          // Silence counts from now on; nothing was to be sent before.
          socket.on('timeout', () => socket.destroy(new IdleTimeout('no data for too long')));
          resolve(socket);
        }
      });
    });
  }

  const pooled = new LinkAgent(true, connectChecked);
  const single = new LinkAgent(false, connectChecked);

  return {
    /** For a separate connection, such as that of a WebSocket. */
    agent: single,

    /** Starts a request. It fails with ConnectTimeout or IdleTimeout if the server takes too long. */
    request(
      { method, path, headers, keepAlive }: LocalRequest,
      answered: (response: IncomingMessage) => void,
    ): ClientRequest {
      const agent = keepAlive ? pooled : single;
      // An empty server name keeps Node from deriving one.
      const target = { host, port: port(), method, path, headers, agent, servername: '' };
      return request(target as RequestOptions, answered);
    },

    /** Ends every connection. */
    close(): void {
      pooled.destroy();
      single.destroy();
    },
  };
}

export const openPlain = (target: ConnectTarget): Opening => ({ socket: connect(target), ready: 'connect' });
