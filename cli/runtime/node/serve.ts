import type { Server as HttpServer, IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { describeError } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log.ts';
import { isSelfTimed } from './adapter.ts';
import { endWithError, errorBody, isHandshake, WEBSOCKET_VERSION } from './handshake.ts';
import { allowMissingHost, checkConnectionsEvery, currentResponse, responseOn } from './internals.ts';
import { CLOSE_TIMEOUT } from './sockets.ts';

/** Time limits for clients, in milliseconds. */
export interface ServeLimits {
  /** For the head of a request. */
  head: number;
  /** For the whole of it. */
  request: number;
  /** Between two requests of a connection. */
  idle: number;
  /** Between checks for late requests. Node's default of 30 s would extend the limits above. */
  check: number;
}

export interface ServeOptions {
  log: Log;
  /** Also answers an incomplete WebSocket handshake. */
  handler: RequestListener;
  /** Handles a complete handshake. Never rejects. */
  upgrade(req: IncomingMessage, socket: Socket, head: Buffer): Promise<void>;
  /** Answers an upgrade to another protocol, and returns true. Otherwise the request is served as if it were a plain one. */
  refuseUpgrade?(req: IncomingMessage, socket: Socket): boolean;
  limits: ServeLimits;
}

const UNREADABLE: Record<string, [status: number, sentence: string]> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'the request took too long to arrive'],
  HPE_HEADER_OVERFLOW: [431, 'the request head is too large'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, 'the body is too large'],
};

/** Serves the upgrades of a listening server, with limits on its clients and answers to malformed requests. */
export function serveHttp(server: HttpServer, { log, handler, upgrade, refuseUpgrade, limits }: ServeOptions): void {
  function onUpgrade(this: HttpServer, req: IncomingMessage, stream: Duplex, head: Buffer): void {
    const socket = stream as Socket;
    const answering = currentResponse(socket);
    if (answering) {
      // A pipelined upgrade waits for the earlier responses, like any request.
      ignoreErrors(socket);
      answering.once('close', () => {
        if (socket.writable) onUpgrade.call(this, req, stream, head);
      });
      return;
    }
    if (req.headers.upgrade?.toLowerCase() !== 'websocket') {
      if (!refuseUpgrade?.(req, socket)) parseAgain(this, req, socket, head);
      return;
    }
    if (!isHandshake(req)) {
      const response = refusalOn(socket, req);
      // RFC 6455 §4.4: a client that requests another version gets the supported one.
      response.setHeader('sec-websocket-version', WEBSOCKET_VERSION);
      handler(req, response);
      return;
    }
    ignoreErrors(socket);
    void upgrade(req, socket, head);
  }

  // A request without `Host` is refused only where loopback matters.
  allowMissingHost(server);
  server.headersTimeout = limits.head;
  server.requestTimeout = limits.request;
  server.keepAliveTimeout = limits.idle;
  checkConnectionsEvery(server, limits.check);
  server.on('error', (error) => log.error(`listener failed: ${describeError(error)}`));
  server.on('upgrade', onUpgrade);
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const stalledRequest = error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? currentResponse(socket)?.req : undefined;
    // Node reports this once per request, and keeps reading it.
    if (!stalledRequest || !isSelfTimed(stalledRequest)) refuseUnreadable(error, socket);
  });
  server.on('checkExpectation', (_req, res: ServerResponse) => {
    res.writeHead(417, ERROR_HEADERS).end(errorBody('unknown expectation'));
  });
  server.on('tlsClientError', (error: Error, socket: Duplex) => {
    // A client's failed handshake concerns nobody else.
    log.debug(`TLS handshake failed: ${error.message}`);
    // Before a handshake is complete nothing can be answered, and Node leaves a late one open.
    socket.destroy();
  });
}

/** The response to a refused upgrade, which ends the connection. */
export function refusalOn(socket: Socket, request: IncomingMessage): ServerResponse {
  ignoreErrors(socket);
  const response = responseOn(socket, request);
  response.shouldKeepAlive = false;
  socket.on('timeout', () => socket.destroy());
  // Discards incoming data: unread, it would also hide that the client has disconnected.
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

/** Answers requests that Node's parser refused, with the error body of every other response. */
function refuseUnreadable(error: NodeJS.ErrnoException, socket: Duplex): void {
  // A response that has started cannot be replaced.
  const answering = currentResponse(socket)?.headersSent;
  if (error.code === 'ECONNRESET' || !socket.writable || answering) {
    socket.destroy();
    return;
  }
  const [status, sentence] = UNREADABLE[error.code ?? ''] ?? [400, 'malformed request'];
  endWithError(socket, status, sentence, ERROR_HEADERS);
}

const ERROR_HEADERS = { 'content-type': 'application/json', 'x-content-type-options': 'nosniff' };

/** Headers of the hop, and of the declined upgrade. */
const UPGRADE_HEADERS = new Set(['connection', 'upgrade', 'http2-settings']);

/**
 * Declines an upgrade to another protocol, such as h2c from curl --http2. The offer may be ignored, but Node stops parsing
 * there, so the request is put back without it and the server parses the connection again.
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
