import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type ClientOptions, WebSocket, WebSocketServer } from 'ws';
import { releaseChunks } from '../../../lib/host/node/release-chunks.ts';
import type { LocalLink } from './local-link.ts';

/** Limits of forwarded sockets: bytes, and milliseconds. */
export interface PairLimits {
  maxMessage: number;
  /** From the connection to the upstream's answer. */
  handshake: number;
  ping: number;
  /** Silence after which a side counts as gone. */
  idle: number;
  /** Between two checks of all sockets. */
  check: number;
}

/** Unsent bytes of one side above which the other is not read. */
const HIGH_WATER_MARK = 1024 * 1024;
/** Milliseconds that a side gets to answer the closing handshake. */
const CLOSE_TIMEOUT = 1_000;

/** Close codes for protocol errors, by the error of `ws`. */
const ERROR_CODES: Record<string, number> = {
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_INVALID_UTF8: 1007,
};
const PROTOCOL_ERROR = 1002;

/** One end of a forwarded socket. */
export interface Side {
  webSocket: WebSocket;
  socket: Socket;
  /** `bytesRead` and unsent bytes at the last check, and the time of their last change. */
  bytes: number;
  unsent: number;
  receivedAt: number;
  /** Close code of an error that was detected here. */
  failure?: number;
}

/** An upstream that has accepted a socket, with the subprotocol that it has selected. */
export interface Dialled {
  side: Side;
  protocol: string | undefined;
}

/** Closes one side after the other. `upstream` tells which of them closed first. */
export type Mirror = (code: number, reason: Buffer, upstream: boolean) => { code: number; reason: string | Buffer };

/** Codes for a missing code, and for a broken connection, neither of which may be sent. */
export const NO_CODE = 1005;
export const isBroken = (code: number): boolean => code === 1006 || code === 1015;

interface Pair {
  client: Side;
  upstream: Side;
  pingedAt: number;
}

export interface SocketPairsDeps {
  limits: PairLimits;
  mirror: Mirror;
  /** Called with every check, while there are sockets. */
  onCheck?(): void;
}

/** Sockets of clients that are joined to sockets of a server on this host. */
export function createSocketPairs({ limits, mirror, onCheck }: SocketPairsDeps) {
  const receiving = {
    perMessageDeflate: false,
    maxPayload: limits.maxMessage,
    // A message in tiny fragments costs far more than its bytes.
    maxFragments: 4096,
    maxBufferedChunks: 65_536,
  };
  const subprotocols = new WeakMap<IncomingMessage, string>();
  const server = new WebSocketServer({
    ...receiving,
    noServer: true,
    clientTracking: false,
    handleProtocols: (offered, req) => {
      const chosen = subprotocols.get(req);
      return chosen !== undefined && offered.has(chosen) ? chosen : false;
    },
  });
  const pairs = new Set<Pair>();
  let timer: NodeJS.Timeout | undefined;

  /** Passes messages and the end of one side on to the other. */
  function pump(from: Side, to: Side, upstream: boolean): void {
    const { webSocket: source } = from;
    const { webSocket: sink } = to;
    releaseChunks(source);
    const sent = () => {
      if (source.isPaused && sink.bufferedAmount <= HIGH_WATER_MARK / 2) source.resume();
    };
    source.on('message', (data, isBinary) => {
      if (sink.readyState !== WebSocket.OPEN) return;
      sink.send(data, { binary: isBinary }, sent);
      if (sink.bufferedAmount > HIGH_WATER_MARK) source.pause();
    });
    source.on('error', ({ code = '' }: NodeJS.ErrnoException) => {
      if (!code.startsWith('WS_ERR_')) return;
      from.failure = ERROR_CODES[code] ?? PROTOCOL_ERROR;
      // Its end would wait for the answer of a client that has broken the protocol.
      close(to, from.failure, '');
      close(from, from.failure, '');
    });
    source.on('close', (code, reason) => {
      const end = from.failure === undefined ? mirror(code, reason, upstream) : { code: from.failure, reason };
      close(to, end.code, end.reason);
    });
  }

  /** Looks after each socket. */
  function check(): void {
    const now = performance.now();
    for (const pair of pairs) {
      for (const side of [pair.client, pair.upstream]) {
        const { socket, webSocket } = side;
        if (socket.bytesRead !== side.bytes || webSocket.bufferedAmount !== side.unsent || webSocket.isPaused) {
          side.bytes = socket.bytesRead;
          side.unsent = webSocket.bufferedAmount;
          side.receivedAt = now;
        } else if (now - side.receivedAt > limits.idle) webSocket.terminate();
      }
      if (now - pair.pingedAt < limits.ping) continue;
      pair.pingedAt = now;
      for (const { webSocket } of [pair.client, pair.upstream]) {
        if (webSocket.readyState === WebSocket.OPEN) webSocket.ping();
      }
    }
    onCheck?.();
  }

  /** Passes messages in both directions until one side ends. */
  function join(client: Side, upstream: Side): void {
    const pair: Pair = { client, upstream, pingedAt: performance.now() };
    pairs.add(pair);
    timer ??= setInterval(check, limits.check);
    pump(client, upstream, false);
    pump(upstream, client, true);
    const forget = () => {
      if (client.webSocket.readyState !== WebSocket.CLOSED) return;
      if (upstream.webSocket.readyState !== WebSocket.CLOSED) return;
      pairs.delete(pair);
      if (pairs.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
    client.webSocket.on('close', forget);
    upstream.webSocket.on('close', forget);
    // Pings with data request a sign of life from the client itself, the others only from this side (contract 04 §5.4a).
    upstream.webSocket.on('ping', (data: Buffer) => {
      if (data.length === 0) upstream.webSocket.pong();
      else if (client.webSocket.readyState === WebSocket.OPEN) client.webSocket.ping(data);
    });
    client.webSocket.on('pong', (data: Buffer) => {
      if (data.length > 0 && upstream.webSocket.readyState === WebSocket.OPEN) upstream.webSocket.pong(data);
    });
    upstream.webSocket.resume();
  }

  return {
    get size(): number {
      return pairs.size;
    },

    /**
     * Opens the upstream's side, which reads nothing until it is joined. Ends with the client. `headers` are those of the
     * upgrade besides the handshake. `refused` gets the plain answer of an upstream that declines.
     * @throws Node's or `ws`'s error; SyntaxError if the offered subprotocols are invalid.
     */
    dial(
      { link, authority, path, headers, protocols = [] }: DialTarget,
      client: Socket,
      refused: (answer: IncomingMessage, end: () => void) => void,
    ): Promise<Dialled> {
      return new Promise((resolve, reject) => {
        const options: ClientOptions = {
          agent: link.agent,
          headers,
          ...receiving,
          autoPong: false,
          handshakeTimeout: limits.handshake,
          finishRequest: (request) => {
            // As sent; `ws` has passed it through a URL parser.
            request.path = path;
            request.end();
          },
        };
        const webSocket = new WebSocket(`ws://${authority}/`, protocols, options);
        const abandon = () => webSocket.terminate();
        client.once('close', abandon);
        let socket: Socket;
        let protocol: string | undefined;
        webSocket.once('upgrade', (response) => {
          socket = response.socket;
          protocol = response.headers['sec-websocket-protocol'];
          // `ws` treats a server that selects none of the offered protocols as broken.
          if (protocol === undefined) response.headers['sec-websocket-protocol'] = protocols[0];
        });
        webSocket.once('open', () => {
          client.off('close', abandon);
          webSocket.pause();
          resolve({ side: sideOf(webSocket, socket), protocol });
        });
        webSocket.once('unexpected-response', (_request, response) => refused(response, abandon));
        webSocket.on('error', (error) => {
          client.off('close', abandon);
          reject(error);
        });
      });
    },

    /** Completes the client's handshake with the selected subprotocol, if it has offered that, and joins both sides. */
    accept(req: IncomingMessage, socket: Socket, head: Buffer, { side, protocol }: Dialled): void {
      if (protocol !== undefined) subprotocols.set(req, protocol);
      let isAccepted = false;
      server.handleUpgrade(req, socket, head, (webSocket) => {
        isAccepted = true;
        join(sideOf(webSocket, socket), side);
      });
      if (!isAccepted) side.webSocket.terminate();
    },

    closeAll,

    /** Closes every socket; resolves when all are closed. */
    async end(code: number, reason: string): Promise<void> {
      const closed = [...pairs].flatMap(({ client, upstream }) => [client, upstream].map(closeOf));
      closeAll(code, reason);
      await Promise.all(closed);
    },
  };

  function closeAll(code: number, reason: string): void {
    for (const { client, upstream } of pairs) {
      close(client, code, reason);
      close(upstream, code, reason);
    }
  }
}

export interface DialTarget {
  link: LocalLink;
  authority: string;
  /** Raw path and query. */
  path: string;
  headers: Record<string, string>;
  protocols?: string[];
}

const sideOf = (webSocket: WebSocket, socket: Socket): Side => ({
  webSocket,
  socket,
  bytes: socket.bytesRead,
  unsent: 0,
  receivedAt: performance.now(),
});

/** Resolves when a side has closed. */
const closeOf = ({ webSocket }: Side): Promise<void> =>
  new Promise((resolve) => {
    if (webSocket.readyState === WebSocket.CLOSED) resolve();
    else webSocket.once('close', () => resolve());
  });

/** Closes a side, and drops it when it does not answer. */
function close({ webSocket }: Side, code: number, reason: string | Buffer): void {
  if (webSocket.readyState === WebSocket.CLOSED) return;
  // The other side's close frame must be read.
  if (webSocket.isPaused) webSocket.resume();
  webSocket.close(code, reason);
  const timer = setTimeout(() => webSocket.terminate(), CLOSE_TIMEOUT);
  webSocket.once('close', () => clearTimeout(timer));
}
