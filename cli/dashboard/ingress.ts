import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  FRAMING_HEADERS,
  HeaderFilter,
  pickHeaders,
  REQUEST_HEADERS,
  RESPONSE_HEADERS,
  readSessionHeader,
  SESSION_HEADER,
} from '../../lib/dashboard/ingress-headers.ts';
import { createIngressMatcher, ingressRoutes, ingressSockets } from '../../lib/dashboard/ingress-routes.ts';
import { MiB } from '../../lib/kit/units.ts';
import {
  announcedLength,
  type Call,
  createForwarder,
  discard,
  type Fail,
  type Failure,
  type ForwardLimits,
} from '../runtime/node/forward.ts';
import { createMinorCollector } from '../runtime/node/gc.ts';
import { type Exchange, refuse, sendJson } from './answers.ts';
import type { Marker } from './marker.ts';
import type { RelayLink } from './relay-link.ts';

/** Limits of one forwarded call (contract 07 §4.3). */
export const INGRESS_LIMITS: ForwardLimits = {
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

const HEALTH_HEADERS = ['accept', 'user-agent'];
const returnedHeaders = new HeaderFilter([...RESPONSE_HEADERS, ...FRAMING_HEADERS]);
const returnedOfHealth = new HeaderFilter(RESPONSE_HEADERS);

/** True if a method has no body. */
const isReading = (method: string): boolean => method === 'GET' || method === 'HEAD';

export interface IngressDeps {
  link: RelayLink;
  marker: Marker;
  limits: ForwardLimits;
  /** Path of the ingress on the dashboard. */
  base: string;
}

/** The same-origin ingress: the routes of the allowlist, forwarded to the relay as they are (contract 07 §4.3). */
export function createIngress({ link, marker, limits, base }: IngressDeps) {
  const match = createIngressMatcher();
  const { addBody, forward, carryAnswer } = createForwarder({
    link,
    limits,
    refuse: refuseFailed,
    carried: createMinorCollector(),
  });
  const pluginInfo = { available: true, path: base, capabilities: ['relay_http', 'relay_websocket'] };
  const description = {
    ...pluginInfo,
    schema_version: 1,
    session_header: SESSION_HEADER,
    routes: ingressRoutes.map(([method, path]) => ({ method, path })),
    websockets: ingressSockets,
  };

  /** Returns a promise only when the marker has to be made first. */
  function handle(exchange: Exchange): void | Promise<void> {
    const { req, res, path } = exchange;
    const method = req.method as string;
    if (path === '') {
      if (isReading(method)) sendJson(res, 200, description);
      else refuse(res, 405, 'method not allowed', ['allow', 'GET, HEAD']);
      return;
    }
    const matched = match(method, path);
    if (matched.kind === 'none') return refuse(res, 404, 'not found');
    if (matched.kind === 'method') return refuse(res, 405, 'method not allowed', ['allow', matched.allow]);
    const isHealth = matched.path === '/health';
    const session = isHealth ? null : readSessionHeader(req.headers);
    if (session?.status !== undefined) return refuse(res, session.status, session.detail);
    const bearer = session?.value;
    const marks = marker.headersFor(req);
    if (marks instanceof Promise) return marks.then((marked) => send(exchange, matched.path, marked, bearer));
    send(exchange, matched.path, marks, bearer);
  }

  /** Forwards an admitted call to `path`. */
  function send({ req, res, query }: Exchange, path: string, marked: string[] | null, bearer?: string): void {
    if (marked === null) {
      refuse(res, 503, marker.missing);
      return;
    }
    const method = req.method as string;
    const isHealth = path === '/health';
    const headers = pickHeaders(req.headers, isHealth ? HEALTH_HEADERS : REQUEST_HEADERS);
    headers.push('host', link.host, ...marked);
    if (bearer !== undefined) headers.push('authorization', `Bearer ${bearer}`);
    const call: Call = { method, path: path + query, headers, bytes: { request: 0, response: 0 } };
    if (isHealth) forward(call, res, (answer, fail) => answerHealth(answer, res, fail));
    else if (isReading(method) || addBody(call, req))
      forward(call, res, (answer, fail) => passOn(call, answer, res, fail));
    else {
      refuse(res, 413, REQUEST_TOO_LARGE);
      discard(req);
    }
  }

  function refuseFailed(res: ServerResponse, failure: Failure): void {
    if (failure.kind === 'request-too-large') refuse(res, 413, REQUEST_TOO_LARGE);
    else if (failure.kind === 'response-too-large') refuse(res, 502, RESPONSE_TOO_LARGE);
    else if (failure.kind === 'timeout') refuse(res, 504, TIMED_OUT);
    else if (failure.kind === 'unreachable') refuse(res, 502, link.unreachable(failure.error));
  }

  /** Passes an answer on as it is: status, the listed headers, and the body as it arrives. */
  function passOn(call: Call, answer: IncomingMessage, res: ServerResponse, fail: Fail): void {
    const headers = returnedHeaders.pick(answer.rawHeaders);
    const length = announcedLength(call, headers);
    if (length > limits.maxResponse) {
      fail({ kind: 'response-too-large' });
      return;
    }
    res.writeHead(answer.statusCode as number, headers);
    carryAnswer(call, answer, res, fail, length);
  }

  /** Answers with the relay's health, and where the ingress is. Anything that is no JSON object stays as it is. */
  function answerHealth(answer: IncomingMessage, res: ServerResponse, fail: Fail): void {
    const chunks: Buffer[] = [];
    let size = 0;
    answer.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_HEALTH) fail({ kind: 'response-too-large' });
      else chunks.push(chunk);
    });
    answer.on('end', () => {
      const body = withIngress(Buffer.concat(chunks), pluginInfo);
      const head = returnedOfHealth.pick(answer.rawHeaders);
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
