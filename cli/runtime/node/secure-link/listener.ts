import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Fetch } from '../../../../handlers/routes.ts';
import type { SocketTable } from '../../../../handlers/sockets.ts';
import type { LoopbackGuard } from '../../../../lib/host/node/loopback-guard.ts';
import { createNodeUpstream } from '../../../../lib/host/node/upstream.ts';
import { canonicalAddress, plainAddress, splitUrl } from '../../../../lib/kit/addresses.ts';
import type { ByteBudget } from '../../../../lib/kit/byte-budget.ts';
import { systemClock } from '../../../../lib/kit/clock.ts';
import type { Log } from '../../../../lib/log.ts';
import type { Relay } from '../../../../lib/relay.ts';
import { createGate } from '../../../../lib/secure-link/gate.ts';
import type { SecureLinkPlan } from '../../../../lib/secure-link/secure-link.ts';
import { surfaceHealth } from '../../../../lib/secure-link/surface.ts';
import { createTargets, type Target } from '../../../../lib/secure-link/targets.ts';
import { json } from '../../../../lib/web/json.ts';
import { peerOf, setPeer } from '../adapter.ts';
import { type ConnectionCaps, ConnectionLimits, createFront } from '../front.ts';
import { holdLoopbacks } from '../listen.ts';
import { send } from '../send.ts';
import { refusalOn, type ServeLimits, serveHttp } from '../serve.ts';
import { createRelayEndpoint } from '../server.ts';
import type { PairLimits } from '../socket-pairs.ts';
import { createProxy, PROXY_LIMITS, type ProxyLimits, refuse } from './proxy.ts';
import { createProxySockets, PROXY_SOCKET_LIMITS } from './proxy-sockets.ts';

/** Limits of the listener (contract 08 §4.4). */
export interface SecureLinkLimits extends ConnectionCaps {
  http: ProxyLimits;
  sockets: PairLimits;
  serve: ServeLimits;
  /** Milliseconds for the TLS handshake. */
  handshake: number;
  /** Streams of Reach. */
  maxStreams: number;
}

const LIMITS: SecureLinkLimits = {
  http: PROXY_LIMITS,
  sockets: PROXY_SOCKET_LIMITS,
  serve: { head: 15_000, request: 80_000, idle: 75_000, check: 1_000 },
  handshake: 10_000,
  maxConnections: 256,
  maxPerPeer: 64,
  maxStreams: 64,
};

const NO_UPGRADE = 'there are no upgrades here';
const MAX_HEAD = 16 * 1024;
/** Milliseconds for responses to end when the listener stops. */
const CLOSE_GRACE = 1_500;

/** The parts of the relay that are served under `/relay`. */
export interface MainDeps {
  fetch: Fetch;
  sockets: SocketTable;
  log: Log;
  /** Checks connections to the servers behind `/api` and `/dashboard`. Default: all pass. */
  guard?: LoopbackGuard;
  /** Limits the long messages of all sockets. */
  reading: ByteBudget;
}

export type SecureLinkListener = Awaited<ReturnType<typeof openSecureLink>>;

/**
 * Listens with TLS for `/relay`, `/api` and `/dashboard` (contract 08 §3, §4). A caller that comes through here is never
 * local, whatever its address or headers.
 * @throws Node's listening error, or that of an unusable certificate, in which case nothing stays open.
 */
export async function openSecureLink(
  relay: Relay,
  plan: SecureLinkPlan,
  { fetch, sockets, log: all, guard, reading }: MainDeps,
  given: Partial<SecureLinkLimits> = {},
) {
  const limits = { ...LIMITS, ...given };
  const log = all.named('secure-link');
  const endpoint = createRelayEndpoint({ log, fetch, sockets, reading });
  const gate = createGate({ ...plan, upstream: createNodeUpstream({ guard }), clock: systemClock });
  const proxy = createProxy({ plan, gate, log, limits: limits.http, guard });
  const proxySockets = createProxySockets({ space: proxy.dashboard, gate, log, limits: limits.sockets });
  const targetOf = createTargets();

  async function answerHealth(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const availability = await gate.check();
    const counters = { version: relay.version, clients: relay.sockets.count(), sessions: relay.sessions.count() };
    await send(req, res, json(surfaceHealth(counters, availability)));
  }

  function answer(req: IncomingMessage, res: ServerResponse, target: Target): void {
    if (target.kind === 'refused') {
      const isEnd = req.method === 'TRACE' || req.method === 'CONNECT';
      const allow = target.allow === undefined ? undefined : { allow: target.allow };
      refuse(req, res, target.status, target.error, isEnd ? { connection: 'close' } : allow);
    } else if (target.kind === 'proxy') {
      if (req.headers.upgrade?.toLowerCase() === 'websocket') {
        refuse(req, res, 400, 'a WebSocket handshake of version 13 is required');
      } else {
        const { namespace, path } = target;
        proxy.handle(req, res, { namespace, path, client: peerOf(req.socket).address });
      }
    } else if (target.kind === 'health') void answerHealth(req, res);
    else if (target.kind === 'route' && target.needsBearer && !req.headers.authorization) {
      refuse(req, res, 401, 'a valid session bearer is required', { 'www-authenticate': 'Bearer' });
    } else {
      req.url = target.path;
      endpoint.handler(req, res);
    }
  }

  const dispatch = (req: IncomingMessage, res: ServerResponse): void =>
    answer(req, res, targetOf(req.method as string, req.url as string));

  /** A pipelined request waits for the earlier responses, since a client must not have many calls in flight at once. */
  const handler = (req: IncomingMessage, res: ServerResponse): void => {
    if (res.socket) dispatch(req, res);
    else res.once('socket', () => dispatch(req, res));
  };

  async function upgrade(req: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    const target = targetOf(req.method as string, req.url as string);
    if (target.kind === 'socket') {
      req.url = target.path;
      req.headers = handshakeHeaders(req);
      return endpoint.upgrade(req, socket, head);
    }
    if (target.kind === 'proxy' && target.namespace === 'dashboard') {
      return proxySockets.upgrade(req, socket, head, { ...target, client: peerOf(socket).address });
    }
    const res = refusalOn(socket, req);
    if (target.kind === 'proxy') refuse(req, res, 400, NO_UPGRADE);
    else if (target.kind === 'refused') answer(req, res, target);
    else refuse(req, res, 400, 'there is no socket here');
  }

  /** Below `/api` no upgrade is ignored, whatever its protocol (contract 08 §4.4). */
  function refuseUpgrade(req: IncomingMessage, socket: Socket): boolean {
    const target = targetOf(req.method as string, req.url as string);
    if (target.kind !== 'proxy' || target.namespace !== 'api') return false;
    refuse(req, refusalOn(socket, req), 400, NO_UPGRADE);
    return true;
  }

  /** A separate server for each entry, so that a connection's entry is certain. */
  function createTlsServer(via: 'secure-link' | 'reach'): HttpsServer {
    const server = createHttpsServer(
      {
        cert: plan.cert,
        key: plan.key,
        minVersion: 'TLSv1.2',
        ALPNProtocols: ['http/1.1'],
        handshakeTimeout: limits.handshake,
        maxHeaderSize: MAX_HEAD,
      },
      handler,
    );
    serveHttp(server, { log, handler, upgrade, refuseUpgrade, limits: limits.serve });
    server.on('secureConnection', (socket: Socket) => {
      const address = via === 'reach' || !socket.remoteAddress ? null : plainAddress(socket.remoteAddress);
      setPeer(socket, { address, tls: true, via, transportHint: 'wss' });
    });
    server.on('checkContinue', (req: IncomingMessage, res: ServerResponse) => {
      const isProxied = targetOf(req.method as string, req.url as string).kind === 'proxy';
      if (!(isProxied && proxy.isTooLarge(req))) res.writeContinue();
      handler(req, res);
    });
    server.on('connect', (req: IncomingMessage, socket: Duplex) => {
      answer(req, refusalOn(socket as Socket, req), targetOf('CONNECT', ''));
    });
    return server;
  }

  const tcp = createTlsServer('secure-link');
  const reach = createTlsServer('reach');
  const held = new ConnectionLimits(limits);
  const streams = new Set<Duplex>();
  const front = createFront(tcp, { limits: held, allowHalfOpen: false });
  const fronts = [front];

  /**
   * Stops accepting, closes sockets with 1001, and drops remaining connections after a moment. Also releases a listener that
   * could not be bound.
   */
  async function close(): Promise<void> {
    for (const server of fronts) server.close();
    for (const server of [tcp, reach]) {
      server.closeIdleConnections();
      server.close();
    }
    const open = [...held.open, ...streams].filter(({ closed }) => !closed);
    const ended = open.map((stream) => once(stream, 'close').catch(() => {}));
    const timer = setTimeout(() => {
      for (const stream of [...held.open, ...streams]) stream.destroy();
    }, CLOSE_GRACE);
    await proxySockets.close();
    await Promise.all(ended);
    clearTimeout(timer);
    proxy.close();
  }

  try {
    front.listen({ host: plan.bindHost, port: plan.port });
    await once(front, 'listening');
    const isNamed = canonicalAddress(splitUrl(`https://${plan.authority}`)?.host ?? '') === null;
    if (isNamed)
      fronts.push(
        ...(await holdLoopbacks(front.address() as AddressInfo, (socket) => front.emit('connection', socket))),
      );
  } catch (error) {
    await close();
    throw error;
  }
  for (const server of fronts) {
    server.on('error', (error) => log.warn(`a connection could not be accepted: ${error.message}`));
  }

  return {
    port: (front.address() as AddressInfo).port,

    /** Serves a stream of Reach, inside which TLS ends here. Its peer is tagged `via: 'reach'`. */
    accept(stream: Duplex): void {
      if (streams.size >= limits.maxStreams) {
        stream.destroy();
        return;
      }
      streams.add(stream);
      stream.once('close', () => streams.delete(stream));
      reach.emit('connection', stream);
    },

    close,
  };
}

/** The headers of a handshake that reach the relay, where no others have a meaning (contract 08 §4.5). */
function handshakeHeaders({ headers }: IncomingMessage): IncomingMessage['headers'] {
  const forwarded: IncomingMessage['headers'] = {};
  for (const name of ['upgrade', 'connection', 'sec-websocket-key', 'sec-websocket-version', 'authorization']) {
    if (headers[name] !== undefined) forwarded[name] = headers[name];
  }
  return forwarded;
}
