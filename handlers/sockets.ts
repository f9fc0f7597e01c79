import { Router } from 'itty-router';
import { offeredProtocols } from '../lib/access/bearer.ts';
import { pageOf } from '../lib/access/page.ts';
import { isSecureTransport, type Peer, peerKey } from '../lib/access/peer.ts';
import { MiB } from '../lib/kit/units.ts';
import type { Relay } from '../lib/relay.ts';
import type { Refusal } from '../lib/socket/sockets.ts';
import type { Caller, SocketEvents, Transport } from '../lib/socket/transport.ts';
import { errorResponse } from '../lib/web/json.ts';
import { foreignPage } from './cors.ts';
import { errorFor, failureResponse } from './errors.ts';
import { misdirected } from './guards.ts';
import { homeSocket } from './mirror.ts';
import { repliesSocket } from './phone.ts';
import { type Guard, type Handler, pathOf, type RelayRequest } from './request.ts';
import { agentSocket, labSocket, outputSocket } from './voice/sessions.ts';

/** One kind of socket. */
export interface SocketRow {
  /** As in the route table, with parameters: `/voice/output/:id`. */
  path: string;
  /** Runs before the upgrade, so its response is a plain one. */
  guard: Guard;
  /** Bytes of the largest message. A larger one closes the socket with 1009. */
  maxMessage: number;
  /** True if binary messages are delivered rather than ignored. */
  binary: boolean;
  /** True if a request of the path without an upgrade is a separate route. */
  isRoute?: true;
  /** Subprotocol to select if the client offers it. */
  protocol?: string;
  open(request: RelayRequest, socket: Transport, relay: Relay): SocketEvents;
  /** Restores a socket that survived a sleep of its object (edge). Without it, such sockets are closed. */
  restore?(socket: Transport, relay: Relay): Promise<SocketEvents | undefined>;
}

/** The multiplexed socket of phones and desktops (contract 01 §3). */
const channels: Omit<SocketRow, 'path'> = {
  guard: mayConnect,
  maxMessage: 40 * MiB,
  binary: false,
  open: (request, socket, relay) => relay.sockets.open(socket, callerOf(request, relay)),
  restore: (socket, relay) => relay.sockets.restore(socket),
};

/** THE socket table. */
export const sockets: readonly SocketRow[] = [
  { path: '/ws', ...channels },
  { path: '/', ...channels },
  outputSocket,
  labSocket,
  agentSocket,
  homeSocket,
  repliesSocket,
];

/**
 * `GET` of a socket's path without upgrade headers. `Retry-After` means that an upgrade would be refused now, and until
 * when, because a page cannot read the status of its upgrade. While the relay stops, this is 503.
 */
export const upgradeRequired: Handler = (request, relay) => {
  const refusal = relay.sockets.refusal(callerOf(request, relay).key);
  if (refusal?.stopping) return refuse(refusal);
  return errorFor(request, 426, 'connect to this path with a WebSocket', {
    upgrade: 'websocket',
    // This header replaces the one that the runtime would set.
    connection: asksToClose(request) ? 'Upgrade, close' : 'Upgrade',
    ...(refusal && { 'retry-after': String(refusal.retryAfter) }),
  });
};

const asksToClose = ({ headers, httpVersion }: RelayRequest): boolean => {
  const options = (headers.get('connection') ?? '').toLowerCase().split(',');
  const has = (wanted: string) => options.some((option) => option.trim() === wanted);
  return has('close') || (httpVersion === '1.0' && !has('keep-alive'));
};

/**
 * Refuses pages of other origins, blocked peers, and sockets over the limits for unauthenticated ones (contract 01 §3.1).
 */
function mayConnect(request: RelayRequest, relay: Relay): Response | undefined {
  const foreign = foreignPage(request, relay);
  if (foreign) return foreign;
  const refusal = relay.sockets.refusal(callerOf(request, relay).key);
  return refusal && refuse(refusal);
}

function refuse({ stopping, blocked, retryAfter }: Refusal): Response {
  const headers = { 'retry-after': String(retryAfter) };
  if (stopping) return errorResponse(503, 'the relay is stopping', headers);
  const sentence = blocked ? 'too many failed attempts, try again later' : 'too many connections, try again soon';
  return errorResponse(429, sentence, headers);
}

function callerOf({ peer, headers }: RelayRequest, relay: Relay): Caller {
  const trusted = relay.config.trustProxyHeaders;
  const transportHint = peer.transportHint ?? (isSecureTransport(peer, headers, trusted) ? 'wss' : 'ws');
  const page = pageOf(headers);
  return {
    peer,
    key: peerKey(peer, headers, trusted),
    transportHint,
    ...(page && { page }),
    ...(peer.via === 'direct' && { url: `${peer.tls ? 'wss' : 'ws'}://${headers.get('host')}` }),
  };
}

/** Result of a WebSocket handshake: a socket of a row, or the plain response that refuses it. */
export type Upgrade = Accepted | { refusal: Response };

export interface Accepted {
  refusal?: undefined;
  row: SocketRow;
  /** The selected subprotocol, without which a browser that offered some drops the connection. */
  protocol?: string;
  open(socket: Transport): SocketEvents;
}

export interface SocketTable {
  /** Matches and guards a handshake. Never rejects. */
  upgrade(request: Request, peer: Peer): Promise<Upgrade>;
  /** The row that serves a path. */
  rowOf(path: string): SocketRow | undefined;
}

/** The relay's sockets, the only part that a runtime knows of them. */
export function createSocketTable(relay: Relay, rows: readonly SocketRow[] = sockets): SocketTable {
  const router = Router<RelayRequest, [Relay]>();
  for (const row of rows) {
    const accept = (request: RelayRequest): Accepted => ({
      row,
      protocol: offeredProtocols(request.headers).find((protocol) => protocol === row.protocol),
      open: (socket) => row.open(request, socket, relay),
    });
    router.get(row.path, row.guard, accept);
  }

  /** Matches a path as sent; the router itself would also accept `/ws/` and `/x/../ws`. */
  function rowOf(path: string): SocketRow | undefined {
    if (path !== '/' && path.endsWith('/')) return undefined;
    return rows.find((_row, index) => router.routes[index]?.[1].test(path));
  }

  async function decide(request: RelayRequest): Promise<Accepted | Response> {
    const [path = ''] = pathOf(request.url).split('?', 1);
    try {
      request.peer = await relay.ingressMarker.peerOf(request.peer, request.headers);
      const refusal = await misdirected(request, relay);
      if (refusal) return refusal;
      const decision: Accepted | Response | undefined = rowOf(path) && (await router.fetch(request, relay));
      return decision ?? errorFor(request, 404, 'not found');
    } catch (error) {
      return failureResponse(error, request, 'upgrade', relay.log);
    }
  }

  return {
    async upgrade(request, peer) {
      const decision = await decide(Object.assign(request as RelayRequest, { peer, isHandshake: true }));
      if ('row' in decision) return decision;
      decision.headers.set('connection', 'close');
      return { refusal: decision };
    },
    rowOf,
  };
}
