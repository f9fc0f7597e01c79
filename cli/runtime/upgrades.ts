import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { callerOf, refuseUpgrade } from '../../handlers/socket.ts';
import type { HeaderReader, Peer } from '../../lib/access/peer.ts';
import { describeError } from '../../lib/errors.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Caller } from '../../lib/socket/transport.ts';
import { NodeTransport } from './transport.ts';

const OPTIONS = {
  maxPayload: 40 * 1024 * 1024,
  // A message in tiny parts costs far more than its bytes.
  maxFragments: 4096,
  maxBufferedChunks: 65_536,
  perMessageDeflate: false,
  // None is spoken here (contract 01 §3.1).
  handleProtocols: () => false as const,
  // A client that does not answer a close keeps its buffers for this long, and no longer.
  closeTimeout: 2_000,
};

/** The one version of the protocol, and the form of a handshake's key. */
export const WEBSOCKET_VERSION = '13';
const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** Whether a request is a whole opening handshake (RFC 6455 §4.2.1). Any other gets the answer of its route. */
export function isHandshake({ method, headers }: IncomingMessage): boolean {
  if (method !== 'GET' || headers.upgrade?.toLowerCase() !== 'websocket') return false;
  return headers['sec-websocket-version'] === WEBSOCKET_VERSION && KEY.test(headers['sec-websocket-key'] ?? '');
}

/**
 * Turns handshakes into the relay's sockets, with `ws` itself: crossws's adapter around it costs a tenth of the
 * connections per second, and keeps each request as long as its socket (2026-11).
 */
export function createUpgrades(relay: Relay) {
  const server = new WebSocketServer({ noServer: true, clientTracking: false, ...OPTIONS });
  let opened = 0;

  function open(webSocket: WebSocket, socket: Socket, caller: Caller): void {
    endAtOnce(socket);
    const transport = new NodeTransport(`socket-${++opened}`, webSocket, socket);
    const events = relay.sockets.open(transport, caller);
    transport.onDrained = () => events.drained();
    webSocket.on('message', (data, isBinary) => {
      // Binary frames are ignored.
      if (!isBinary) events.message(String(data));
    });
    webSocket.on('ping', () => events.pinged());
    webSocket.on('close', () => events.closed());
    webSocket.on('error', (error) => relay.log.debug(`socket error: ${describeError(error)}`));
  }

  return {
    /** Takes a whole handshake over, or returns the answer of one that is refused. */
    accept(request: IncomingMessage, socket: Socket, head: Buffer, peer: Peer): Response | undefined {
      const caller = callerOf(peer, headerReader(request), relay);
      const refusal = refuseUpgrade(pathOf(request.url ?? ''), caller, relay);
      if (refusal) return refusal;
      server.handleUpgrade(request, socket, head, (webSocket) => open(webSocket, socket, caller));
    },
  };
}

/**
 * A client that ends its side is gone, and with nothing left to send so is the connection. `ws` would first shut the
 * other side down and then end its receiver twice: Node makes an error of that which nobody sees, and both together
 * are an eighth of what a connection costs (2026-11).
 */
function endAtOnce(socket: Socket): void {
  const ofWs = socket.listeners('end').at(-1) as () => void;
  socket.off('end', ofWs);
  socket.on('end', () => {
    if (socket.writableLength === 0) socket.destroy();
    else ofWs.call(socket);
  });
}

/** The path of a request's target, which may be a whole URL (RFC 9112 §3.2.2). */
function pathOf(target: string): string {
  if (!target.startsWith('/')) return URL.canParse(target) ? new URL(target).pathname : target;
  const query = target.indexOf('?');
  return query < 0 ? target : target.slice(0, query);
}

const headerReader = ({ headers }: IncomingMessage): HeaderReader => ({
  get: (name) => headers[name]?.toString() ?? null,
  has: (name) => headers[name] !== undefined,
});
