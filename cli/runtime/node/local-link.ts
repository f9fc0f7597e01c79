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

/** A connection was not made in time. */
export class ConnectTimeout extends Error {}

/** Nothing was received or sent on a connection for too long. */
export class IdleTimeout extends Error {}

export interface LocalLinkOptions {
  /** An address or name of this host. */
  host: string;
  /** Asked for each request: it may change. */
  port(): number;
  /** Milliseconds, including TLS. */
  connectTimeout: number;
  /**
   * Milliseconds of silence after which a connection, in use or kept, fails with IdleTimeout: less than the server keeps
   * one. Listening for each request would cost a tenth of a short one.
   */
  idle: number;
  /** Opens a connection otherwise than in plain TCP. */
  open?(target: ConnectTarget): Opening | Promise<Opening>;
  /** Judges each connection before anything is sent. Default: all may be used. */
  guard?: LoopbackGuard;
}

export interface ConnectTarget {
  host: string;
  port: number;
  noDelay: true;
  timeout: number;
}

/** A connection that is being made. */
export interface Opening {
  socket: Socket;
  /** The event by which it is ready. */
  ready: 'connect' | 'secureConnect';
  /** Looks at a connection that is ready, before anything is sent. Returns why it must not be used. */
  check?(): Error | undefined | Promise<Error | undefined>;
}

export interface LocalRequest {
  method: string;
  /** Path and query. */
  path: string;
  /** An object, or alternating names and values with `host` among them. */
  headers: OutgoingHttpHeaders | readonly string[];
  /** Takes and leaves an idle connection, which may turn out to be closed. */
  keepAlive: boolean;
}

/** Connections to one server, which need no names to be told apart, and have their timeout themselves. */
class LinkAgent extends Agent {
  constructor(keepAlive: boolean, connectChecked: () => Promise<Socket>) {
    super({ keepAlive, maxFreeSockets: MAX_IDLE });
    // Node's agent takes a connection from here when it is ready, and never sends on one that was not checked.
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
    const opening = open({ host, port: port(), noDelay: true, timeout: idle });
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
          // Silence counts from now on: nothing was to be said before.
          socket.on('timeout', () => socket.destroy(new IdleTimeout('no data for too long')));
          resolve(socket);
        }
      });
    });
  }

  const kept = new LinkAgent(true, connectChecked);
  const single = new LinkAgent(false, connectChecked);

  return {
    /** For one connection of its own, such as that of a WebSocket. */
    agent: single,

    /** Begins a request. It fails with ConnectTimeout or IdleTimeout when the server takes too long. */
    request(
      { method, path, headers, keepAlive }: LocalRequest,
      answered: (response: IncomingMessage) => void,
    ): ClientRequest {
      const agent = keepAlive ? kept : single;
      // An empty server name keeps Node from looking for one.
      const target = { host, port: port(), method, path, headers, agent, servername: '' };
      return request(target as RequestOptions, answered);
    },

    /** Ends every connection. */
    close(): void {
      kept.destroy();
      single.destroy();
    },
  };
}

export const openPlain = (target: ConnectTarget): Opening => ({ socket: connect(target), ready: 'connect' });
