import type { IncomingMessage, ServerResponse } from 'node:http';
import type { LoopbackGuard } from '../../../../lib/host/node/loopback-guard.ts';
import { upstreamReason } from '../../../../lib/host/upstream.ts';
import { unbracket } from '../../../../lib/kit/addresses.ts';
import { MiB } from '../../../../lib/kit/units.ts';
import type { Log } from '../../../../lib/log.ts';
import type { Availability, Gate } from '../../../../lib/secure-link/gate.ts';
import {
  type RequestHeaderRules,
  requestHeaders,
  responseHeaders,
  withoutStale,
} from '../../../../lib/secure-link/proxy-headers.ts';
import {
  MAX_REWRITTEN,
  type Rewriting,
  rewriteHtml,
  rewriteJson,
  rewritingOf,
} from '../../../../lib/secure-link/rewrite.ts';
import type { SecureLinkPlan } from '../../../../lib/secure-link/secure-link.ts';
import type { Namespace } from '../../../../lib/secure-link/targets.ts';
import { errorResponse } from '../../../../lib/web/json.ts';
import { markSelfTimed } from '../adapter.ts';
import {
  announcedLength,
  type Call,
  createForwarder,
  type Fail,
  type Failure,
  type Forwarder,
  type ForwardLimits,
} from '../forward.ts';
import { createMinorCollector } from '../gc.ts';
import { createLocalLink, type LocalLink } from '../local-link.ts';
import { send } from '../send.ts';

/** Limits of the proxied namespaces (contract 08 §4.4). */
export interface ProxyLimits extends ForwardLimits {
  /** Milliseconds for a connection to an upstream. */
  connect: number;
}

export const PROXY_LIMITS: ProxyLimits = {
  maxRequest: 16 * MiB,
  maxResponse: 64 * MiB,
  connect: 5_000,
  idle: 120_000,
  total: 900_000,
};

/** A server behind a namespace. */
export interface Space {
  rules: RequestHeaderRules;
  /** Path of the upstream's URL, empty for the root. */
  base: string;
  link: LocalLink;
}

export interface ProxyDeps {
  plan: Pick<SecureLinkPlan, 'authority' | 'api' | 'dashboard'>;
  gate: Gate;
  log: Log;
  limits: ProxyLimits;
  guard?: LoopbackGuard;
}

/** The HTTP proxy of `/api` and `/dashboard` (contract 08 §4). */
export function createProxy({ plan, gate, log, limits, guard }: ProxyDeps) {
  const carried = createMinorCollector();
  const createSpace = (namespace: Namespace, upstream: URL): Space & { forwarder: Forwarder } => {
    const { hostname, port, host, pathname } = upstream;
    const link = createLocalLink({
      host: unbracket(hostname),
      port: () => Number(port) || 80,
      connectTimeout: limits.connect,
      idle: limits.idle,
      guard,
    });
    const refuseFailed = (res: ServerResponse, failure: Failure) => {
      if (failure.kind === 'unreachable') log.debug(`${namespace}: ${upstreamReason(failure.error)}`);
      const [status, sentence] = REFUSALS[failure.kind];
      refuse(res.req, res, status, sentence);
    };
    return {
      rules: { namespace, host, authority: plan.authority },
      base: pathname.replace(/\/$/, ''),
      link,
      forwarder: createForwarder({ link, limits, refuse: refuseFailed, carried }),
    };
  };
  const spaces = { api: createSpace('api', plan.api), dashboard: createSpace('dashboard', plan.dashboard) };

  function proceed(req: IncomingMessage, res: ServerResponse, target: ProxyTarget): void {
    const { namespace, path, client } = target;
    const { rules, base, forwarder } = spaces[namespace];
    const upstreamPath = base + path;
    const call: Call = {
      method: req.method as string,
      path: upstreamPath,
      headers: requestHeaders(req.rawHeaders, rules, path, client),
      bytes: { request: 0, response: 0 },
    };
    const coding = req.headers['transfer-encoding'];
    if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
      refuse(req, res, 400, 'unsupported transfer coding');
      return;
    }
    if (!forwarder.addBody(call, req)) {
      refuse(req, res, 413, TOO_LARGE);
      return;
    }
    if (call.body) markSelfTimed(req);
    const startedAt = performance.now();
    res.once('close', () => {
      const { request, response } = call.bytes;
      const took = Math.round(performance.now() - startedAt);
      log.debug(`${namespace} ${call.method} ${res.statusCode}, ${request} bytes in, ${response} out, ${took} ms`);
    });
    forwarder.forward(call, res, (answer, fail) => passOn(call, answer, res, fail, spaces[namespace]));
  }

  /** Passes an answer on, as it arrives unless it is rewritten. */
  function passOn(call: Call, answer: IncomingMessage, res: ServerResponse, fail: Fail, space: (typeof spaces)['api']) {
    const { rules, forwarder } = space;
    const status = answer.statusCode as number;
    const headers = responseHeaders(answer.rawHeaders, rules);
    const length = announcedLength(call, headers);
    if (length > limits.maxResponse) {
      fail({ kind: 'response-too-large' });
      return;
    }
    const mayRewrite = rules.namespace === 'dashboard' && isWhole(status);
    const rewriting = mayRewrite ? rewritingOf(answer.headers['content-type']) : null;
    if (rewriting && isEncoded(answer)) {
      fail({ kind: 'unreachable', error: new Error('it encodes pages although it was asked not to') });
      return;
    }
    if (rewriting && call.method === 'HEAD') {
      // The answer to a GET is unknown.
      res.writeHead(status, withoutStale(headers)).end();
      answer.resume();
      return;
    }
    if (rewriting && length <= MAX_REWRITTEN) {
      hold(rewriting, { status, headers }, call, answer, res, fail, forwarder);
      return;
    }
    res.writeHead(status, headers);
    forwarder.carryAnswer(call, answer, res, fail, length);
  }

  return {
    /** The dashboard, for its sockets. */
    dashboard: spaces.dashboard as Space,

    /** Forwards a request; to the dashboard only while the gate is on. */
    handle(req: IncomingMessage, res: ServerResponse, target: ProxyTarget): void {
      const known = target.namespace === 'api' ? OPEN : gate.known();
      const decide = ({ dashboard }: Pick<Availability, 'dashboard'>) => {
        if (res.destroyed) return;
        if (dashboard) proceed(req, res, target);
        else refuse(req, res, 503, GATE_OFF);
      };
      if (known) decide(known);
      else void gate.check().then(decide);
    },

    /** True if the announced body of a request is too large, for a client that waits for 100 Continue. */
    isTooLarge: (req: IncomingMessage): boolean => Number(req.headers['content-length']) > limits.maxRequest,

    /** Ends every connection to the upstreams. */
    close(): void {
      spaces.api.link.close();
      spaces.dashboard.link.close();
    },
  };
}

export interface ProxyTarget {
  namespace: Namespace;
  /** Raw path and query below the namespace. */
  path: string;
  /** Address of the TLS peer, null for a stream of Reach. */
  client: string | null;
}

/** The API server checks its own bearer, so there is no gate before it. */
const OPEN = { dashboard: true };
export const GATE_OFF = 'the dashboard is not available here';
const TOO_LARGE = 'the request body is too large';
const UNAVAILABLE = 'upstream unavailable';
const REFUSALS: Record<Failure['kind'], [status: number, sentence: string]> = {
  'request-too-large': [413, TOO_LARGE],
  'response-too-large': [502, 'the upstream answer is too large'],
  timeout: [502, UNAVAILABLE],
  unreachable: [502, UNAVAILABLE],
};

/** Answers with an error of the listener itself. */
export function refuse(
  req: IncomingMessage,
  res: ServerResponse,
  status: number,
  error: string,
  headers?: Record<string, string>,
): void {
  void send(req, res, errorResponse(status, error, headers));
}

const isEncoded = ({ headers }: IncomingMessage): boolean =>
  !['', 'identity'].includes((headers['content-encoding'] ?? '').trim().toLowerCase());

/** True if an answer of this status has a complete body. */
const isWhole = (status: number): boolean => status !== 204 && status !== 206 && status !== 304;

/** Buffers a body of at most 1 MiB until it is complete, and sends it rewritten. A larger one passes unchanged. */
function hold(
  rewriting: Rewriting,
  { status, headers }: { status: number; headers: string[] },
  call: Call,
  answer: IncomingMessage,
  res: ServerResponse,
  fail: Fail,
  forwarder: Forwarder,
): void {
  const chunks: Buffer[] = [];
  let size = 0;
  const onData = (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    if (size <= MAX_REWRITTEN) return;
    answer.off('data', onData);
    answer.off('end', onEnd);
    res.writeHead(status, headers);
    for (const held of chunks) res.write(held);
    call.bytes.response = size;
    forwarder.carryAnswer(call, answer, res, fail);
  };
  const onEnd = () => {
    const body = Buffer.concat(chunks);
    const rewritten = rewrite(rewriting, body);
    call.bytes.response = (rewritten ?? body).length;
    const sent = rewritten ? withoutStale(headers) : headers;
    if (rewritten || answer.headers['content-length'] === undefined) {
      sent.push('Content-Length', String((rewritten ?? body).length));
    }
    res.writeHead(status, sent).end(rewritten ?? body);
  };
  answer.on('data', onData);
  answer.on('end', onEnd);
}

/** The rewritten body; null if it stays unchanged. */
function rewrite(rewriting: Rewriting, body: Buffer): Buffer | null {
  const encoding = rewriting === 'html' ? 'latin1' : 'utf8';
  const text = body.toString(encoding);
  const rewritten = rewriting === 'html' ? rewriteHtml(text) : rewriteJson(text);
  return rewritten === text ? null : Buffer.from(rewritten, encoding);
}
