import {
  type Server as HttpServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Fetch } from '../../../handlers/routes.ts';
import type { SocketTable } from '../../../handlers/sockets.ts';
import { describeError } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log.ts';
import { createAdapter, isSelfTimed, peerOf, requestOf } from './adapter.ts';
import { isHandshake, WEBSOCKET_VERSION } from './handshake.ts';
import { allowMissingHost, checkConnectionsEvery, currentResponse, responseOn } from './internals.ts';
import { send } from './send.ts';
import { CLOSE_TIMEOUT, createNodeSockets } from './sockets.ts';

/** Milliseconds for the head of a request, for the whole of it, and between two requests of a connection. */
const HEAD_TIMEOUT = 20_000;
const REQUEST_TIMEOUT = 80_000;
const IDLE_TIMEOUT = 75_000;
/** Milliseconds between checks for late requests. Node's default of 30 s would stretch the limits above. */
const TIMEOUT_CHECK = 5_000;
const UNREADABLE: Record<string, [status: number, sentence: string]> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'the request took too long to arrive'],
  HPE_HEADER_OVERFLOW: [431, 'the request head is too large'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, 'the body is too large'],
};
/** Milliseconds that clients get to answer the closing handshake of a stopping relay. */
const CLOSE_GRACE = 1_500;

export interface ServerOptions {
  log: Log;
  fetch: Fetch;
  sockets: SocketTable;
  /** Milliseconds in which a client that is not read must take something of what is sent: 45 s unless set. */
  stallTimeout?: number;
}

export interface RelayServer {
  /** Handles the requests of a server that is given to `serve`. */
  readonly handler: RequestListener;
  /** Takes over a server that listens, with the limits on its clients. */
  serve(server: HttpServer): void;
  /** Stops accepting; gives sockets that are being closed a moment, then drops what is left. */
  close(): Promise<void>;
}

/** HTTP and WebSocket on Node, with or without TLS, on any number of listeners. */
export function createRelayServer({ log, fetch, sockets, stallTimeout }: ServerOptions): RelayServer {
  const nodeSockets = createNodeSockets(log, stallTimeout);
  const handler = createAdapter(fetch, log);

  function onUpgrade(this: HttpServer, req: IncomingMessage, stream: Duplex, head: Buffer): void {
    const socket = stream as Socket;
    const answering = currentResponse(socket);
    if (answering) {
      // A pipelined upgrade waits for the responses before it, like any request.
      ignoreErrors(socket);
      answering.once('close', () => {
        if (socket.writable) onUpgrade.call(this, req, stream, head);
      });
      return;
    }
    if (req.headers.upgrade?.toLowerCase() !== 'websocket') {
      parseAgain(this, req, socket, head);
      return;
    }
    if (!isHandshake(req)) {
      const response = refusalOn(socket, req);
      // RFC 6455 §4.4: a client that asks for another version is told the supported one.
      response.setHeader('sec-websocket-version', WEBSOCKET_VERSION);
      handler(req, response);
      return;
    }
    void upgrade(req, socket, head);
  }

  /** Never rejects. */
  async function upgrade(req: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    ignoreErrors(socket);
    try {
      const decided = await sockets.upgrade(requestOf(req), peerOf(socket));
      if (!socket.writable) socket.destroy();
      else if (decided.refusal) await send(req, refusalOn(socket, req), decided.refusal);
      else await nodeSockets.accept(decided, req, socket, head);
    } catch (error) {
      log.error(`upgrade failed: ${describeError(error)}`);
      socket.destroy();
    }
  }

  const servers: HttpServer[] = [];

  return {
    handler,

    serve(server) {
      servers.push(server);
      // A request without `Host` is refused only where loopback matters.
      allowMissingHost(server);
      server.headersTimeout = HEAD_TIMEOUT;
      server.requestTimeout = REQUEST_TIMEOUT;
      server.keepAliveTimeout = IDLE_TIMEOUT;
      checkConnectionsEvery(server, TIMEOUT_CHECK);
      server.on('error', (error) => log.error(`listener failed: ${describeError(error)}`));
      server.on('upgrade', onUpgrade);
      server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
        const late = error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? currentResponse(socket)?.req : undefined;
        // Node reports this once per request, and goes on reading it.
        if (!late || !isSelfTimed(late)) refuseUnreadable(error, socket);
      });
      server.on('checkExpectation', (_req, res: ServerResponse) => {
        res.writeHead(417, ERROR_HEADERS).end(errorBody('unknown expectation'));
      });
      // The broken handshake of one client matters to nobody else.
      server.on('tlsClientError', (error: Error) => log.debug(`TLS handshake failed: ${error.message}`));
    },

    async close() {
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

/** The response to a refused upgrade, which ends the connection. */
function refusalOn(socket: Socket, request: IncomingMessage): ServerResponse {
  ignoreErrors(socket);
  const response = responseOn(socket, request);
  response.shouldKeepAlive = false;
  socket.on('timeout', () => socket.destroy());
  // Discards what still arrives: unread, it would also hide that the client has gone.
  socket.resume();
  response.on('finish', () => {
    socket.end();
    const timer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT);
    socket.once('close', () => clearTimeout(timer));
  });
  return response;
}

/** Node no longer handles the errors of this connection, and a reset must not become an uncaught exception. */
function ignoreErrors(socket: Socket): void {
  if (!socket.listeners('error').includes(ignore)) socket.on('error', ignore);
}

/** Answers what Node's parser refused, with the error body of every other response. */
function refuseUnreadable(error: NodeJS.ErrnoException, socket: Duplex): void {
  // A response under way cannot be replaced.
  const answering = currentResponse(socket)?.headersSent;
  if (error.code === 'ECONNRESET' || !socket.writable || answering) {
    socket.destroy();
    return;
  }
  const [status, sentence] = UNREADABLE[error.code ?? ''] ?? [400, 'malformed request'];
  const body = errorBody(sentence);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    ...Object.entries(ERROR_HEADERS).map(([name, value]) => `${name}: ${value}`),
    `content-length: ${body.length}`,
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}

const ERROR_HEADERS = { 'content-type': 'application/json', 'x-content-type-options': 'nosniff' };
const errorBody = (error: string): string => JSON.stringify({ ok: false, error });

/** Headers of the hop, and of the upgrade that is declined. */
const UPGRADE_HEADERS = new Set(['connection', 'upgrade', 'http2-settings']);

/**
 * Declines an upgrade to another protocol: curl --http2 offers h2c. The offer may be ignored, but Node stops parsing at
 * it, so the request is put back without it and the server parses the connection again.
 */
function parseAgain(server: HttpServer, req: IncomingMessage, socket: Socket, head: Buffer): void {
  ignoreErrors(socket);
  const lines = [`${req.method} ${req.url} HTTP/${req.httpVersion}`];
  for (let index = 0; index < req.rawHeaders.length; index += 2) {
    const [name = '', value = ''] = req.rawHeaders.slice(index, index + 2);
    if (!UPGRADE_HEADERS.has(name.toLowerCase())) lines.push(`${name}: ${value}`);
  }
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), head]));
  server.emit('encrypted' in socket ? 'secureConnection' : 'connection', socket);
}

const ignore = () => {};
