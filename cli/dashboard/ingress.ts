import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import {
  FRAMING_HEADERS,
  pickHeaders,
  REQUEST_HEADERS,
  RESPONSE_HEADERS,
  readSessionHeader,
  SESSION_HEADER,
} from '../../lib/dashboard/ingress-headers.ts';
import { createIngressMatcher, ingressRoutes, ingressSockets } from '../../lib/dashboard/ingress-routes.ts';
import { type Exchange, refuse, sendJson } from './answers.ts';
import type { Marker } from './marker.ts';
import { ConnectTimeout, type RelayLink } from './relay-link.ts';

const MiB = 1024 * 1024;

/** Limits of one forwarded call: bytes, and milliseconds (contract 07 §4.3). */
export interface IngressLimits {
  maxRequest: number;
  maxResponse: number;
  idle: number;
  total: number;
}

export const INGRESS_LIMITS: IngressLimits = {
  maxRequest: 32 * MiB,
  maxResponse: 64 * MiB,
  idle: 60_000,
  total: 120_000,
};

const TIMED_OUT = 'relay transport timed out';
const REQUEST_TOO_LARGE = 'request too large';
const RESPONSE_TOO_LARGE = 'relay response too large';
/** Bytes of the relay's health, which is read as a whole. */
const MAX_HEALTH = MiB;
/** Milliseconds for which the rest of a refused body is discarded, so that its sender gets to read the refusal. */
const DISCARD_TIMEOUT = 5_000;

const HEALTH_HEADERS = ['accept', 'user-agent'];
const RETURNED_HEADERS = [...RESPONSE_HEADERS, ...FRAMING_HEADERS];

export interface IngressParts {
  link: RelayLink;
  marker: Marker;
  limits: IngressLimits;
  /** Path of the ingress on the dashboard. */
  base: string;
}

/** What is sent to the relay. */
interface Call {
  method: string;
  path: string;
  headers: string[];
  /** Undefined when the request's body is not read. */
  body?: IncomingMessage;
}

/** Ends a call with an answer of the ingress, or breaks off one that has begun. */
type Fail = (status: number, detail: string) => void;
type Answered = (answer: IncomingMessage, fail: Fail) => void;

/** The same-origin ingress: the routes of the allowlist, forwarded to the relay as they are (contract 07 §4.3). */
export function createIngress({ link, marker, limits, base }: IngressParts) {
  const match = createIngressMatcher();
  const about = { available: true, path: base, capabilities: ['relay_http', 'relay_websocket'] };
  const description = {
    ...about,
    schema_version: 1,
    session_header: SESSION_HEADER,
    routes: ingressRoutes.map(([method, path]) => ({ method, path })),
    websockets: ingressSockets,
  };

  async function handle(exchange: Exchange): Promise<void> {
    const { req, res, path, query } = exchange;
    const method = req.method as string;
    const isRead = method === 'GET' || method === 'HEAD';
    if (path === '') {
      if (isRead) sendJson(res, 200, description);
      else refuse(res, 405, 'method not allowed', ['allow', 'GET, HEAD']);
      return;
    }
    const matched = match(method, path);
    if (matched.kind === 'none') return refuse(res, 404, 'not found');
    if (matched.kind === 'method') return refuse(res, 405, 'method not allowed', ['allow', matched.allow]);
    const isHealth = matched.path === '/health';
    const session = isHealth ? null : readSessionHeader(req.headers);
    if (session?.status !== undefined) return refuse(res, session.status, session.detail);
    const marks = marker.headersFor(req);
    const marked = marks instanceof Promise ? await marks : marks;
    if (marked === null) return refuse(res, 503, marker.missing);

    const headers = pickHeaders(req.headers, isHealth ? HEALTH_HEADERS : REQUEST_HEADERS);
    headers.push('host', link.host, ...marked);
    if (session) headers.push('authorization', `Bearer ${session.value}`);
    const call: Call = { method, path: matched.path + query, headers };
    if (isHealth) return forward(call, res, (answer, fail) => answerHealth(answer, res, fail));
    if (!isRead && !addBody(call, req)) {
      refuse(res, 413, REQUEST_TOO_LARGE);
      discard(req);
      return;
    }
    forward(call, res, (answer, fail) => passOn(answer, res, fail));
  }

  /** Adds the body of a request to a call, framed as it came. False when it is announced to be too large. */
  function addBody(call: Call, req: IncomingMessage): boolean {
    const length = req.headers['content-length'];
    if (Number(length) > limits.maxRequest) return false;
    if (length === undefined && req.headers['transfer-encoding'] !== undefined) {
      call.headers.push('transfer-encoding', 'chunked');
      call.body = req;
    } else {
      call.headers.push('content-length', length ?? '0');
      if (Number(length) > 0) call.body = req;
    }
    return true;
  }

  /** Sends a call to the relay and hands its answer to `answered`. Ends with the client, or at a limit. */
  function forward(call: Call, res: ServerResponse, answered: Answered, isRepeated = false): void {
    const { method, path, headers, body } = call;
    // A call without a body can be repeated when a kept connection turns out to be closed.
    const keepAlive = !isRepeated && (method === 'GET' || method === 'HEAD');
    const options = { method, path, headers, timeout: limits.idle, keepAlive };
    const upstream: ClientRequest = link.request(options, (response) => onResponse(response));
    let answer: IncomingMessage | undefined;
    let isOver = false;
    let stopBody = () => {};

    const end = () => {
      isOver = true;
      clearTimeout(timer);
      res.off('close', onClosed);
      stopBody();
      if (body && !body.complete) discard(body);
    };
    const fail: Fail = (status, detail) => {
      if (isOver) return;
      end();
      upstream.destroy();
      // A client that has got a part must not take it for the whole.
      if (res.headersSent) res.destroy();
      else refuse(res, status, detail);
    };
    const onClosed = () => {
      end();
      if (!answer?.complete) upstream.destroy();
    };
    const timer = setTimeout(() => fail(504, TIMED_OUT), limits.total);
    res.once('close', onClosed);

    const onResponse = (response: IncomingMessage) => {
      answer = response;
      response.on('error', ignore);
      response.once('close', () => {
        if (!response.complete) fail(502, link.unreachable(new Error('connection reset')));
      });
      answered(response, fail);
    };
    upstream.once('timeout', () => fail(504, TIMED_OUT));
    upstream.on('error', (error) => {
      // An answer that came before the connection broke is still passed on.
      if (isOver || answer) return;
      if (keepAlive && upstream.reusedSocket) {
        end();
        forward(call, res, answered, true);
      } else if (error instanceof ConnectTimeout) fail(504, TIMED_OUT);
      else fail(502, link.unreachable(error));
    });
    if (!body) {
      upstream.end();
      return;
    }
    stopBody = carry(body, upstream, limits.maxRequest, () => fail(413, REQUEST_TOO_LARGE));
    // The relay may answer without reading all of it.
    upstream.once('close', () => {
      stopBody();
      if (!body.complete) discard(body);
    });
  }

  /** Passes an answer on as it is: status, the listed headers, and the body as it arrives. */
  function passOn(answer: IncomingMessage, res: ServerResponse, fail: Fail): void {
    if (res.req.method !== 'HEAD' && Number(answer.headers['content-length']) > limits.maxResponse) {
      fail(502, RESPONSE_TOO_LARGE);
      return;
    }
    res.writeHead(answer.statusCode as number, pickHeaders(answer.headers, RETURNED_HEADERS));
    carry(answer, res, limits.maxResponse, () => fail(502, RESPONSE_TOO_LARGE));
  }

  /** Answers with the relay's health, and where the ingress is. Anything that is no JSON object stays as it is. */
  function answerHealth(answer: IncomingMessage, res: ServerResponse, fail: Fail): void {
    const chunks: Buffer[] = [];
    let size = 0;
    answer.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_HEALTH) fail(502, RESPONSE_TOO_LARGE);
      else chunks.push(chunk);
    });
    answer.on('end', () => {
      const body = withIngress(Buffer.concat(chunks), about);
      const head = pickHeaders(answer.headers, RESPONSE_HEADERS);
      if (res.req.method !== 'HEAD') head.push('content-length', String(body.length));
      res.writeHead(answer.statusCode as number, head).end(body);
    });
  }

  return { handle };
}

/** Adds `dashboard_ingress` to a JSON object; returns any other body unchanged. */
function withIngress(body: Buffer, ingress: object): Buffer {
  try {
    const health: unknown = JSON.parse(String(body));
    if (health === null || typeof health !== 'object' || Array.isArray(health)) return body;
    return Buffer.from(JSON.stringify({ ...health, dashboard_ingress: ingress }));
  } catch {
    return body;
  }
}

/**
 * Carries a body chunk by chunk, no faster than it is taken, and calls `exceeded` when it is larger than `limit` bytes.
 * Returns a function that stops.
 */
function carry(from: Readable, to: Writable, limit: number, exceeded: () => void): () => void {
  let size = 0;
  const onData = (chunk: Buffer) => {
    size += chunk.length;
    if (size > limit) exceeded();
    else if (!to.write(chunk)) from.pause();
  };
  const onDrain = () => void from.resume();
  const onEnd = () => void to.end();
  from.on('data', onData);
  from.on('end', onEnd);
  to.on('drain', onDrain);
  return () => {
    from.off('data', onData);
    from.off('end', onEnd);
    to.off('drain', onDrain);
  };
}

/** Discards the rest of a body for a while, and then drops a client that goes on sending. */
function discard(body: IncomingMessage): void {
  body.resume();
  const timer = setTimeout(() => {
    if (!body.complete) body.destroy();
  }, DISCARD_TIMEOUT);
  timer.unref();
  body.once('end', () => clearTimeout(timer));
  body.once('close', () => clearTimeout(timer));
}

const ignore = () => {};
