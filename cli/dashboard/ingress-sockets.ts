import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocket, WebSocketServer } from 'ws';
import { pickHeaders, RESPONSE_HEADERS, readSessionHeader } from '../../lib/dashboard/ingress-headers.ts';
import { matchIngressSocket } from '../../lib/dashboard/ingress-routes.ts';
import { isHandshake } from '../runtime/node/handshake.ts';
import { refuseUpgrade, refuseUpgradeWith } from './answers.ts';
import type { Marker } from './marker.ts';
import type { DashboardHost } from './plugin.ts';
import type { RelayLink } from './relay-link.ts';

const MiB = 1024 * 1024;

/** Limits of forwarded sockets: bytes, and milliseconds (contract 07 §4.3). */
export interface SocketLimits {
  maxMessage: number;
  /** Sockets that are open or being opened. */
  maxSockets: number;
  handshake: number;
  ping: number;
  /** Silence after which a side is gone. */
  idle: number;
  /** Between two checks of all sockets: short enough to close them within 2 s of disabling the plugin. */
  check: number;
}

export const SOCKET_LIMITS: SocketLimits = {
  maxMessage: 4 * MiB,
  maxSockets: 512,
  handshake: 5_000,
  ping: 30_000,
  idle: 90_000,
  check: 1_500,
};

/** Unsent bytes of one side above which the other is not read. */
const HIGH_WATER_MARK = MiB;
/** Milliseconds that a side gets to answer the closing handshake. */
const CLOSE_TIMEOUT = 1_000;
/** Bytes of a refusal by the relay that are passed on. */
const MAX_REFUSAL = 64 * 1024;
const DISABLED = 'Relay plugin is disabled';

/** Close codes that stand for a broken protocol, by the error of `ws`. */
const ERROR_CODES: Record<string, number> = {
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_INVALID_UTF8: 1007,
};
const PROTOCOL_ERROR = 1002;

/** Answer to an upgrade that is not accepted. */
interface Refusal {
  status: number;
  detail: string;
}

/** The relay's own refusal, passed on as it is. */
interface RelayRefusal {
  status: number;
  headers: string[];
  body: Buffer;
}

/** One end of a forwarded socket. */
interface Side {
  webSocket: WebSocket;
  socket: Socket;
  /** `bytesRead` at the last check, and when it last grew. */
  bytes: number;
  heardAt: number;
  /** Close code of an error that was found here. */
  failure?: number;
}

interface Pair {
  client: Side;
  relay: Side;
  pingedAt: number;
}

export interface IngressSocketsParts {
  host: DashboardHost;
  link: RelayLink;
  marker: Marker;
  limits: SocketLimits;
}

/** The sockets of the ingress (contract 07 §4.3). */
export function createIngressSockets({ host, link, marker, limits }: IngressSocketsParts) {
  const subprotocols = new WeakMap<IncomingMessage, string>();
  const receiving = {
    perMessageDeflate: false,
    maxPayload: limits.maxMessage,
    // A message in tiny fragments costs far more than its bytes.
    maxFragments: 4096,
    maxBufferedChunks: 65_536,
  };
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
  let opening = 0;
  let isClosed = false;
  let isChecking = false;
  let timer: NodeJS.Timeout | undefined;

  /** The refusal of an upgrade by the dashboard, or the path at the relay and the headers that it gets. */
  async function admit(req: IncomingMessage, path: string | null): Promise<Refusal | Admitted> {
    if (isClosed || !(await host.isPluginEnabled())) return { status: 403, detail: 'plugin disabled' };
    if (!host.checkHostOrigin(req)) return { status: 403, detail: 'host or origin not allowed' };
    const target = path === null ? null : matchIngressSocket(path);
    if (!target) return { status: 404, detail: 'not found' };
    if (!isHandshake(req)) return { status: 400, detail: 'a WebSocket handshake of version 13 is required' };
    if (opening + pairs.size > limits.maxSockets) return { status: 503, detail: 'too many sockets' };
    const ticket = await host.consumeWsTicket(req);
    if (!ticket) return { status: 403, detail: 'a fresh WebSocket ticket is required' };
    if (target.path === null) return { status: 404, detail: 'not found' };
    const headers: Record<string, string> = {};
    if (target.needsSession) {
      const session = readSessionHeader(req.headers);
      if (session.status !== undefined) return session;
      headers.authorization = `Bearer ${session.value}`;
    }
    const marked = await marker.headersFor(req);
    if (!marked) return { status: 503, detail: marker.missing };
    for (let index = 0; index < marked.length; index += 2)
      headers[marked[index] as string] = marked[index + 1] as string;
    if (ticket.subprotocol !== undefined) subprotocols.set(req, ticket.subprotocol);
    return { path: target.path, headers };
  }

  /** Opens the relay's side, which reads nothing until it is joined. */
  function dial({ path, headers }: Admitted, client: Socket): Promise<Side | Refusal | RelayRefusal> {
    return new Promise((resolve) => {
      const webSocket = new WebSocket(`ws://${link.host}${path}`, {
        agent: link.agent,
        headers,
        ...receiving,
        handshakeTimeout: limits.handshake,
      });
      const abandon = () => webSocket.terminate();
      client.once('close', abandon);
      let socket: Socket;
      webSocket.once('upgrade', (response) => {
        socket = response.socket;
      });
      webSocket.once('open', () => {
        client.off('close', abandon);
        webSocket.pause();
        resolve(sideOf(webSocket, socket));
      });
      webSocket.once('unexpected-response', (_request, response) => {
        void readRefusal(response)
          .then(resolve, (error) => resolve({ status: 502, detail: link.unreachable(error) }))
          .finally(() => webSocket.terminate());
      });
      webSocket.on('error', (error) => {
        client.off('close', abandon);
        resolve({ status: 502, detail: link.unreachable(error) });
      });
    });
  }

  /** Pumps messages both ways until one side ends. */
  function join(client: Side, relay: Side): void {
    const pair: Pair = { client, relay, pingedAt: performance.now() };
    pairs.add(pair);
    timer ??= setInterval(check, limits.check);
    pump(client, relay);
    pump(relay, client);
    const forget = () => {
      if (client.webSocket.readyState !== WebSocket.CLOSED || relay.webSocket.readyState !== WebSocket.CLOSED) return;
      pairs.delete(pair);
      if (pairs.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
    client.webSocket.on('close', forget);
    relay.webSocket.on('close', forget);
    relay.webSocket.resume();
  }

  /** Closes everything when the plugin has been disabled, and looks after each socket. */
  function check(): void {
    const now = performance.now();
    for (const pair of pairs) {
      for (const side of [pair.client, pair.relay]) {
        if (side.socket.bytesRead !== side.bytes || side.webSocket.isPaused) {
          side.bytes = side.socket.bytesRead;
          side.heardAt = now;
        } else if (now - side.heardAt > limits.idle) side.webSocket.terminate();
      }
      if (now - pair.pingedAt < limits.ping) continue;
      pair.pingedAt = now;
      for (const { webSocket } of [pair.client, pair.relay]) {
        if (webSocket.readyState === WebSocket.OPEN) webSocket.ping();
      }
    }
    void checkEnabled();
  }

  /** A dashboard that cannot tell counts as one that has disabled the plugin. */
  async function checkEnabled(): Promise<void> {
    if (isChecking) return;
    isChecking = true;
    try {
      if (!(await host.isPluginEnabled())) closeAll(1008, DISABLED);
    } catch {
      closeAll(1008, DISABLED);
    } finally {
      isChecking = false;
    }
  }

  function closeAll(code: number, reason: string): void {
    for (const { client, relay } of pairs) {
      close(client, code, reason);
      close(relay, code, reason);
    }
  }

  return {
    /** Answers an upgrade. `path` is below the ingress, null for one beside it. Never rejects. */
    async upgrade(req: IncomingMessage, stream: Duplex, head: Buffer, path: string | null): Promise<void> {
      const socket = stream as Socket;
      // Node no longer handles the errors of this connection.
      socket.on('error', ignore);
      opening++;
      try {
        const admitted = await admit(req, path);
        if ('status' in admitted) return refuseUpgradeWith(socket, admitted.status, admitted.detail);
        const answer = await dial(admitted, socket);
        if ('detail' in answer) return refuseUpgradeWith(socket, answer.status, answer.detail);
        if ('body' in answer) return refuseUpgrade(socket, answer.status, answer.body, answer.headers);
        if (isClosed) {
          answer.webSocket.terminate();
          return refuseUpgradeWith(socket, 403, 'plugin disabled');
        }
        let isAccepted = false;
        server.handleUpgrade(req, socket, head, (webSocket) => {
          isAccepted = true;
          join(sideOf(webSocket, socket), answer);
        });
        if (!isAccepted) answer.webSocket.terminate();
      } catch {
        refuseUpgradeWith(socket, 503, 'the dashboard cannot admit this socket now');
      } finally {
        opening--;
      }
    },

    /** Closes every socket with 1001; resolves when all are closed. */
    async close(): Promise<void> {
      isClosed = true;
      const closed = [...pairs].flatMap(({ client, relay }) => [client, relay].map(closeOf));
      closeAll(1001, 'the dashboard is closing');
      await Promise.all(closed);
    },
  };
}

/** An upgrade that may go to the relay. */
interface Admitted {
  path: string;
  headers: Record<string, string>;
}

const sideOf = (webSocket: WebSocket, socket: Socket): Side => ({
  webSocket,
  socket,
  bytes: socket.bytesRead,
  heardAt: performance.now(),
});

/** Resolves when a side has closed. */
const closeOf = ({ webSocket }: Side): Promise<void> =>
  new Promise((resolve) => {
    if (webSocket.readyState === WebSocket.CLOSED) resolve();
    else webSocket.once('close', () => resolve());
  });

/** Passes messages and the end of one side on to the other. */
function pump(from: Side, to: Side): void {
  const { webSocket: source } = from;
  const { webSocket: sink } = to;
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
  source.on('close', (code, reason) => close(to, from.failure ?? mirrored(code), reason));
}

/** A code that may be sent, for one that was met: 1005 stands for none, 1006 and 1015 for a broken connection. */
const mirrored = (code: number): number => (code === 1005 ? 1000 : code === 1006 || code === 1015 ? 1011 : code);

/** Closes a side, and drops it when it does not answer. */
function close({ webSocket }: Side, code: number, reason: string | Buffer): void {
  if (webSocket.readyState === WebSocket.CLOSED) return;
  // The other side's close frame has to be read.
  if (webSocket.isPaused) webSocket.resume();
  webSocket.close(code, reason);
  const timer = setTimeout(() => webSocket.terminate(), CLOSE_TIMEOUT);
  webSocket.once('close', () => clearTimeout(timer));
}

/** Reads the relay's plain answer to an upgrade. */
async function readRefusal(response: IncomingMessage): Promise<RelayRefusal> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_REFUSAL) throw new Error('its answer is too large');
    chunks.push(chunk);
  }
  const headers = pickHeaders(response.headers, RESPONSE_HEADERS);
  return { status: response.statusCode ?? 502, headers, body: Buffer.concat(chunks) };
}

const ignore = () => {};
