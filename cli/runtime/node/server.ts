import type { Server as HttpServer, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Fetch } from '../../../handlers/routes.ts';
import type { SocketTable } from '../../../handlers/sockets.ts';
import { describeError } from '../../../lib/errors.ts';
import type { ByteBudget } from '../../../lib/kit/byte-budget.ts';
import type { Log } from '../../../lib/log.ts';
import { createAdapter, peerOf, requestOf } from './adapter.ts';
import { send } from './send.ts';
import { refusalOn, type ServeLimits, serveHttp } from './serve.ts';
import { createNodeSockets } from './sockets.ts';

const LIMITS: ServeLimits = { head: 20_000, request: 80_000, idle: 75_000, check: 5_000 };
/** Milliseconds that clients get to answer the closing handshake of a stopping relay. */
const CLOSE_GRACE = 1_500;

export interface RelayEndpointOptions {
  log: Log;
  fetch: Fetch;
  sockets: SocketTable;
  /** Limits the long messages of all sockets. */
  reading: ByteBudget;
  /** Milliseconds in which a client that is not read must read some of the sent data: 45 s by default. */
  stallTimeout?: number;
}

/** Answers requests and handshakes with the relay's own tables. The peer is that of `peerOf`. */
export function createRelayEndpoint(options: RelayEndpointOptions) {
  const { log, fetch, sockets } = options;
  const nodeSockets = createNodeSockets(options);
  return {
    handler: createAdapter(fetch, log),

    /** Handles a complete handshake. Never rejects. */
    async upgrade(req: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
      try {
        const decision = await sockets.upgrade(requestOf(req), peerOf(socket));
        if (!socket.writable) socket.destroy();
        else if (decision.refusal) await send(req, refusalOn(socket, req), decision.refusal);
        else await nodeSockets.accept(decision, req, socket, head);
      } catch (error) {
        log.error(`upgrade failed: ${describeError(error)}`);
        socket.destroy();
      }
    },
  };
}

export type RelayServer = ReturnType<typeof createRelayServer>;

/** HTTP and WebSocket on Node, with or without TLS, on any number of listeners. */
export function createRelayServer(options: RelayEndpointOptions) {
  const { handler, upgrade } = createRelayEndpoint(options);
  const { log } = options;
  const servers: HttpServer[] = [];

  return {
    /** Handles the requests of a server that is passed to `serve`. */
    handler,

    /** Takes over a listening server, with limits on its clients. */
    serve(server: HttpServer): void {
      servers.push(server);
      serveHttp(server, { log, handler, upgrade, limits: LIMITS });
    },

    /** Stops accepting; gives closing sockets a moment, then drops the rest. */
    async close(): Promise<void> {
      const closed = servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve())));
      for (const server of servers) server.closeIdleConnections();
      const timer = setTimeout(() => {
        for (const server of servers) server.closeAllConnections();
      }, CLOSE_GRACE);
      await Promise.all(closed);
      clearTimeout(timer);
    },
  };
}
