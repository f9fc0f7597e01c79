import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type RawData, WebSocketServer } from 'ws';
import { callerOf, refuseUpgrade } from '../../../handlers/socket.ts';
import type { HeaderReader, Peer } from '../../../lib/access/peer.ts';
import { describeError } from '../../../lib/errors.ts';
import type { Relay } from '../../../lib/relay.ts';
import type { Caller } from '../../../lib/socket/transport.ts';
import { NodeTransport, RelayWebSocket } from './transport.ts';

/** A client that does not answer its end keeps its connection for this many milliseconds, and no longer. */
export const CLOSE_TIMEOUT = 2_000;

const OPTIONS = {
  WebSocket: RelayWebSocket,
  maxPayload: 40 * 1024 * 1024,
  // A message in tiny parts costs far more than its bytes.
  maxFragments: 4096,
  maxBufferedChunks: 65_536,
  perMessageDeflate: false,
  closeTimeout: CLOSE_TIMEOUT,
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

  const onError = (error: Error) => relay.log.debug(`socket error: ${describeError(error)}`);

  function open(webSocket: RelayWebSocket, socket: Socket, caller: Caller): void {
    endAtOnce(socket);
    const transport = new NodeTransport(`socket-${++opened}`, webSocket, socket);
    webSocket.events = relay.sockets.open(transport, caller);
    webSocket.on('message', onMessage);
    webSocket.on('ping', onPing);
    webSocket.on('close', onClose);
    webSocket.on('error', onError);
  }

  return {
    /** Takes a whole handshake over, or returns the answer of one that is refused. */
    accept(request: IncomingMessage, socket: Socket, head: Buffer, peer: Peer): Response | undefined {
      const caller = callerOf(peer, headerReader(request), relay);
      const refusal = refuseUpgrade(pathOf(request.url ?? ''), caller, relay);
      if (refusal) return refusal;
      // No subprotocol is spoken here (contract 01 §3.1); `ws` would answer a malformed one by itself.
      if (request.headers['sec-websocket-protocol'] !== undefined) delete request.headers['sec-websocket-protocol'];
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
  endOfWs ??= socket.listeners('end').at(-1) as typeof endOfWs;
  if (endOfWs) socket.off('end', endOfWs);
  socket.on('end', onEnd);
}

let endOfWs: ((this: Socket) => void) | undefined;

function onEnd(this: Socket): void {
  if (this.writableLength === 0) this.destroy();
  else endOfWs?.call(this);
}

// One of each for all sockets: they know whose they are by what they are called on.

function onMessage(this: RelayWebSocket, data: RawData, isBinary: boolean): void {
  // Binary frames are ignored.
  if (!isBinary) this.events?.message(String(data));
}

function onPing(this: RelayWebSocket): void {
  this.events?.pinged();
}

function onClose(this: RelayWebSocket): void {
  this.events?.closed();
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
