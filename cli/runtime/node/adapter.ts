import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Headers, Request } from '@whatwg-node/fetch';
import { createServerAdapter } from '@whatwg-node/server';
import type { RelayRequest } from '../../../handlers/request.ts';
import type { Fetch } from '../../../handlers/routes.ts';
import type { Peer } from '../../../lib/access/peer.ts';
import { describeError } from '../../../lib/errors.ts';
import type { HangUp } from '../../../lib/kit/event.ts';
import type { Log } from '../../../lib/log.ts';
import { errorResponse } from '../../../lib/web/json.ts';
import { send } from './send.ts';

/** Only the path and query of a request's URL count, since its authority is `Host`, which the client writes. */
const ORIGIN = 'http://localhost';

/** Headers in which an empty value counts as present: `X-Forwarded-For:` still reveals a proxy. */
class RequestHeaders extends Headers {
  override has(name: string): boolean {
    return this.get(name) !== null;
  }
}

interface NodeContext {
  req: IncomingMessage;
  res: ServerResponse;
}

/** The adapter's request, with connection facts that are computed only when a handler needs them. */
class NodeRequest extends Request {
  override url = ORIGIN;
  #req: IncomingMessage | undefined;
  #res: ServerResponse | undefined;
  #signal: AbortSignal | undefined;
  #hangUp: HangUp | undefined;

  constructor(url: string, init: RequestInit) {
    init.headers = new RequestHeaders(init.headers);
    super(url, init);
  }

  /** A handshake has no response. */
  attach({ req, res }: { req: IncomingMessage; res?: ServerResponse }): this {
    this.url = ORIGIN + targetOf(req);
    this.#req = req;
    this.#res = res;
    return this;
  }

  get httpVersion(): string | undefined {
    return this.#req?.httpVersion;
  }

  get target(): string | undefined {
    return this.#req?.url;
  }

  /** Aborts when the client hangs up before its response is sent. */
  override get signal(): AbortSignal {
    this.#signal ??= signalOf(this.hangUp);
    return this.#signal;
  }

  get hangUp(): HangUp {
    this.#hangUp ??= new ResponseHangUp(this.#res);
    return this.#hangUp;
  }
}

/** Aborts when a response's connection closes before it has been sent. */
class ResponseHangUp implements HangUp {
  readonly #res: ServerResponse | undefined;
  #listeners: Set<() => void> | undefined;

  constructor(res: ServerResponse | undefined) {
    this.#res = res;
  }

  get aborted(): boolean {
    return this.#res?.closed === true && !this.#res.writableFinished;
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.#listeners) {
      this.#listeners = new Set();
      this.#res?.once('close', () => this.#closed());
    }
    this.#listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners?.delete(listener);
  }

  #closed(): void {
    if (this.aborted) for (const listener of [...(this.#listeners ?? [])]) listener();
  }
}

function signalOf(hangUp: HangUp): AbortSignal {
  const controller = new AbortController();
  if (hangUp.aborted) controller.abort();
  else hangUp.addEventListener('abort', () => controller.abort());
  return controller.signal;
}

/** Number of `Host` headers of a request. With two, a proxy may have checked the other one (RFC 9112 §3.2). */
function hostsOf({ rawHeaders }: IncomingMessage): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') count++;
  }
  return count;
}

/** Turns Node's requests into calls of `fetch`, and sends the responses. */
export function createAdapter(fetch: Fetch, log: Log): RequestListener {
  const { handleNodeRequest } = createServerAdapter<NodeContext>(
    (request, context) => fetch(toRelayRequest(request as NodeRequest, context), peerOf(context.req.socket)),
    // Set explicitly: otherwise it is determined with the global `Request`, which loads Node's own fetch: 30 ms of a start.
    { fetchAPI: { Request: NodeRequest as typeof Request }, __useCustomAbortCtrl: true },
  );

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    try {
      const isAmbiguous = hostsOf(req) > 1;
      const response = isAmbiguous ? errorResponse(400, 'more than one Host') : handleNodeRequest(req, { req, res });
      await send(req, res, await response);
    } catch (error) {
      log.error(`response failed: ${describeError(error)}`);
      res.destroy();
    }
  }

  return (req, res) => {
    // A pipelined request waits until the earlier responses are sent. Its own could not be sent sooner, and is not notified
    // when the connection ends: a file opened for it would stay open, replies taken for it would be lost.
    if (res.socket) void handle(req, res);
    else res.once('socket', () => void handle(req, res));
  };
}

/** The request of a handshake, which the adapter does not see. */
export function requestOf(req: IncomingMessage): Request {
  const request = new NodeRequest(ORIGIN, { method: req.method, headers: req.headers as Record<string, string> });
  return request.attach({ req });
}

function toRelayRequest(request: NodeRequest, context: NodeContext): Request {
  const { req } = context;
  if (req.method === 'POST') {
    // The reader of `body` requests one chunk at a time, and gives up the connection if it stops early.
    (request as Request as RelayRequest).chunks = () => {
      markSelfTimed(req);
      return req.iterator({ destroyOnReturn: false });
    };
  }
  return request.attach(context);
}

/** Path and query of a request's target, which may be a whole URL (RFC 9112 §3.2.2). */
function targetOf({ url = '/' }: IncomingMessage): string {
  if (url.startsWith('/')) return url;
  if (!URL.canParse(url)) return `/${url}`;
  const { pathname, search } = new URL(url);
  return pathname + search;
}

/** Marks a request whose reader itself limits the time of its body. */
const SELF_TIMED = Symbol('self-timed');
type SelfTimed = IncomingMessage & { [SELF_TIMED]?: boolean };

/** Exempts the body of this request from the server's time limit, because its reader has its own. */
export function markSelfTimed(req: IncomingMessage): void {
  (req as SelfTimed)[SELF_TIMED] = true;
}

/** True if the reader of a request's body has its own time limit, so that the server's does not apply. */
export const isSelfTimed = (req: IncomingMessage): boolean => (req as SelfTimed)[SELF_TIMED] === true;

/** Holds a connection's peer. A `WeakMap` would keep every dead connection alive for a few collections (2026-11). */
const PEER = Symbol('peer');

/** Sets the peer of a connection accepted by a listener other than the main one, before its first request. */
export function setPeer(socket: Socket & { [PEER]?: Peer }, peer: Peer): void {
  socket[PEER] = peer;
}

/** The peer of a connection. Its address is requested from the system only once. */
export function peerOf(socket: Socket & { [PEER]?: Peer }): Peer {
  socket[PEER] ??= {
    address: socket.remoteAddress ?? null,
    tls: 'encrypted' in socket,
    via: 'direct',
    ends: () => ({
      local: { address: socket.localAddress, port: socket.localPort },
      remote: { address: socket.remoteAddress, port: socket.remotePort },
    }),
  };
  return socket[PEER];
}
