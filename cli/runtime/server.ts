import {
  createServer,
  type Server as HttpServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
  ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Peer as CrosswsPeer } from 'crossws';
import crossws from 'crossws/adapters/node';
import { NodeRequest, sendNodeResponse } from 'srvx/node';
import type { RelayRequest } from '../../handlers/request.ts';
import type { Fetch } from '../../handlers/routes.ts';
import { callerOf, refuseUpgrade } from '../../handlers/socket.ts';
import type { Peer } from '../../lib/access/peer.ts';
import { describeError } from '../../lib/errors.ts';
import type { Relay } from '../../lib/relay.ts';
import type { SocketEvents } from '../../lib/socket/sockets.ts';
import { NodeTransport } from './transport.ts';

const HEAD_TIMEOUT = 20_000;
const REQUEST_TIMEOUT = 80_000;
const IDLE_TIMEOUT = 75_000;
/** Node looks for late requests this often; its default of 30 s would stretch the limits above. */
const TIMEOUT_CHECK = 5_000;
/** `maxFragments` and `maxBufferedChunks` are missing in the types: a message in tiny parts costs far more than its bytes. */
const SOCKET_LIMITS = {
  maxPayload: 40 * 1024 * 1024,
  maxFragments: 4096,
  maxBufferedChunks: 65_536,
  perMessageDeflate: false,
  clientTracking: false,
  // A client that does not answer a close keeps its buffers for this long, and no longer.
  closeTimeout: 2_000,
};
/** The one version of the protocol, and the form of a handshake's key. */
const VERSION = '13';
const KEY = /^[+/0-9A-Za-z]{22}==$/;
const UNREADABLE: Record<string, [status: number, sentence: string]> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'the request took too long to arrive'],
  HPE_HEADER_OVERFLOW: [431, 'the request head is too large'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, 'the body is too large'],
};
/** How long clients get to answer the closing handshake of a stopping relay. */
const CLOSE_GRACE = 1_500;

export interface ServerOptions {
  relay: Relay;
  fetch: Fetch;
  tls?: { cert: Buffer; key: Buffer };
}

export interface RelayServer {
  /** Starts listening. Rejects with Node's error, as `EADDRINUSE`. */
  listen(host: string, port: number): Promise<AddressInfo>;
  /** Stops accepting; gives sockets that are being closed a moment, then drops what is left. */
  close(): Promise<void>;
}

/** HTTP, HTTPS and WebSocket on Node, in front of `relay`. */
export function createRelayServer({ relay, fetch, tls }: ServerOptions): RelayServer {
  const peers = new WeakMap<Socket, Peer>();
  const peerOf = (socket: Socket): Peer => {
    let peer = peers.get(socket);
    if (!peer) {
      peer = { address: socket.remoteAddress ?? null, tls: 'encrypted' in socket, via: 'direct' };
      peers.set(socket, peer);
    }
    return peer;
  };

  let opened = 0;
  const sockets = crossws({
    // Keep-alive with the contract's own times is done by `relay.sockets`.
    idleTimeout: 0,
    // One for all: the default is the path of each request, parsed out of its URL.
    getNamespace: () => '/',
    serverOptions: SOCKET_LIMITS,
    hooks: {
      upgrade: (request) => refuseUpgrade(request as RelayRequest, relay),
      open(peer) {
        const context = contextOf(peer);
        context.handshake._request = undefined;
        const transport = new NodeTransport(`socket-${++opened}`, peer, context.socket);
        context.events = relay.sockets.open(transport, context.caller);
      },
      message(peer, message) {
        // Binary frames are ignored.
        if (typeof message.rawData === 'string') contextOf(peer).events?.message(message.rawData);
      },
      drain: (peer) => contextOf(peer).events?.drained(),
      ping: (peer) => contextOf(peer).events?.pinged(),
      close: (peer) => contextOf(peer).events?.closed(),
      error: (_peer, error) => relay.log.debug(`socket error: ${describeError(error)}`),
    },
  });

  const handler: RequestListener = (req, res) => {
    const request = new NodeRequest({ req: req as never, res: res as never }) as unknown as Request;
    fetch(request, peerOf(req.socket))
      .then((response) => send(res, response))
      .catch((error) => {
        relay.log.error(`answer failed: ${describeError(error)}`);
        res.destroy();
      });
  };

  function onUpgrade(this: HttpServer, req: IncomingMessage, stream: Duplex, head: Buffer): void {
    const socket = stream as Socket;
    // A client that resets while it is being refused must not become an unhandled error.
    socket.on('error', ignore);
    if (req.headers.upgrade?.toLowerCase() !== 'websocket') {
      parseAgain(this, req, socket, head);
      return;
    }
    if (!isHandshake(req)) {
      refuseHandshake(req, socket);
      return;
    }
    const request = new NodeRequest({ req: req as never }) as unknown as RelayRequest;
    request.peer = peerOf(socket);
    const handshake = handshakeOf(req);
    const context: UpgradeContext = { socket, caller: callerOf(request, relay), handshake };
    Object.assign(request, { context });
    sockets.handleUpgrade(handshake as IncomingMessage, socket, head, request).catch((error) => {
      relay.log.error(`upgrade failed: ${describeError(error)}`);
      socket.destroy();
    });
  }

  /** An upgrade that is no complete handshake gets the answer of its route. */
  function refuseHandshake(req: IncomingMessage, socket: Socket): void {
    const response = new ServerResponse(req);
    response.shouldKeepAlive = false;
    // RFC 6455 §4.4: whoever asks for a version that is not spoken here is told the one that is.
    response.setHeader('sec-websocket-version', VERSION);
    response.assignSocket(socket);
    response.on('finish', () => socket.end());
    handler(req, response);
  }

  const create = () => {
    const options = {
      // A request without `Host` is no loopback one; its route answers it, as every other.
      requireHostHeader: false,
      connectionsCheckingInterval: TIMEOUT_CHECK,
      headersTimeout: HEAD_TIMEOUT,
      requestTimeout: REQUEST_TIMEOUT,
      keepAliveTimeout: IDLE_TIMEOUT,
    };
    const server = tls
      ? createTlsServer({ ...options, ...tls, minVersion: 'TLSv1.2' }, handler)
      : createServer(options, handler);
    server.on('upgrade', onUpgrade);
    server.on('clientError', refuseUnreadable);
    server.on('checkExpectation', (_req, res: ServerResponse) => {
      res.writeHead(417, ERROR_HEADERS).end(errorBody('unknown expectation'));
    });
    // A broken handshake of one client is no reason to say anything louder.
    server.on('tlsClientError', (error: Error) => relay.log.debug(`TLS handshake failed: ${error.message}`));
    return server;
  };
  const servers: ReturnType<typeof create>[] = [];

  return {
    async listen(host, port) {
      const server = create();
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen({ host, port }, () => {
          server.off('error', reject);
          server.on('error', (error) => relay.log.error(`listener failed: ${describeError(error)}`));
          resolve();
        });
      });
      servers.push(server);
      return server.address() as AddressInfo;
    },

    async close() {
      const closed = servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve())));
      for (const server of servers) server.closeIdleConnections();
      const timer = setTimeout(() => {
        sockets.closeAll(1001, 'server shutting down', true);
        for (const server of servers) server.closeAllConnections();
      }, CLOSE_GRACE);
      await Promise.all(closed);
      clearTimeout(timer);
    },
  };
}

/** srvx's own response gives its finished parts away, without building a platform one. */
interface FastAnswer {
  _toNodeResponse?(): { status: number; headers: string[]; body: unknown };
}

/**
 * Sends an answer. One of text goes out in a single write, head and body together: through `write` and `end`, as srvx
 * does it, Node corks the socket, which costs a tenth of the requests (2026-11).
 */
function send(res: ServerResponse, response: Response): void | Promise<void> {
  const parts = (response as FastAnswer)._toNodeResponse?.();
  if (!parts) return sendNodeResponse(res as never, response);
  if (typeof parts.body === 'string') void res.writeHead(parts.status, parts.headers).end(parts.body);
  else return sendNodeResponse(res as never, { _toNodeResponse: () => parts } as never);
}

/** Whether a request is a whole opening handshake (RFC 6455 §4.2.1). Any other gets the answer of its route. */
function isHandshake({ method, headers }: IncomingMessage): boolean {
  if (method !== 'GET' || headers.upgrade?.toLowerCase() !== 'websocket') return false;
  return headers['sec-websocket-version'] === VERSION && KEY.test(headers['sec-websocket-key'] ?? '');
}

/** What Node's parser refuses gets the error body of every other answer. */
function refuseUnreadable(error: NodeJS.ErrnoException, socket: Duplex): void {
  // In the middle of another answer nothing may be said.
  const answering = (socket as { _httpMessage?: ServerResponse })._httpMessage?.headersSent;
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

/** Headers that only concern the hop, or the upgrade that does not happen. */
const UPGRADE_HEADERS = new Set(['connection', 'upgrade', 'http2-settings']);

/**
 * An `Upgrade` to something else (curl --http2 offers h2c) may be ignored, but Node stops parsing at it, body and all.
 * So the request is put back, without the offer, and the server starts on the connection anew.
 */
function parseAgain(server: HttpServer, req: IncomingMessage, socket: Socket, head: Buffer): void {
  const lines = [`${req.method} ${req.url} HTTP/${req.httpVersion}`];
  for (let index = 0; index < req.rawHeaders.length; index += 2) {
    const [name = '', value = ''] = req.rawHeaders.slice(index, index + 2);
    if (!UPGRADE_HEADERS.has(name.toLowerCase())) lines.push(`${name}: ${value}`);
  }
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), head]));
  server.emit('encrypted' in socket ? 'secureConnection' : 'connection', socket);
}

const ignore = () => {};

/** What crossws and `ws` need of an upgrade's request. crossws hangs the web request on it, as `_request`. */
type Handshake = Pick<IncomingMessage, 'method' | 'url' | 'headers' | 'socket'> & { _request?: unknown };

/**
 * The handshake of a request. crossws keeps what it is given as long as the socket: Node's whole request with its
 * stream, and whatever else a client says in headers, would be a third of the memory of an idle socket.
 */
function handshakeOf({ method, url, headers, socket }: IncomingMessage): Handshake {
  const needed: IncomingHttpHeaders = {};
  for (const name of HANDSHAKE_HEADERS) if (headers[name] !== undefined) needed[name] = headers[name];
  return { method, url, headers: needed, socket };
}
const HANDSHAKE_HEADERS = [
  'host',
  'upgrade',
  'sec-websocket-key',
  'sec-websocket-version',
  'sec-websocket-protocol',
  'sec-websocket-extensions',
];

/** What this file keeps with a socket. */
interface UpgradeContext {
  readonly socket: Socket;
  readonly caller: ReturnType<typeof callerOf>;
  readonly handshake: Handshake;
  /** Set once it is open. */
  events?: SocketEvents;
}

const contextOf = (peer: CrosswsPeer): UpgradeContext => peer.context as unknown as UpgradeContext;
