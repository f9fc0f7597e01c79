import { STATUS_CODES } from 'node:http';
import { type EventHandler, H3, type H3Event, HTTPError, HTTPResponse } from 'h3';
import { statusOf } from '../../handlers/errors.ts';
import { describeError, RelayError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import { JSON_HEADERS } from './answers.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** Method, path as h3 reads it (`:name` is one segment), and answer. `HEAD` works where `GET` does. */
export type Route = readonly [method: Method, path: string, answer: EventHandler];

/**
 * An app of the dashboard's side: its paths count only as they are written, and its errors are `{"detail": ...}` (contract
 * 07 §4).
 */
export function createRouteApp(routes: readonly Route[], log: Log): H3 {
  const app = new H3({
    silent: true,
    allowMalformedURL: true,
    onError: (error, event) => answerError(error, event, log),
  });
  app.use((event) => {
    if (!isAsWritten(event)) throw notFound();
  });
  const methods = new Map<string, string[]>();
  for (const [method, path, answer] of routes) {
    const names = method === 'GET' ? (['GET', 'HEAD'] as const) : [method];
    for (const name of names) app.on(name, path, answer);
    methods.set(path, [...(methods.get(path) ?? []), ...names]);
  }
  for (const [path, names] of methods) {
    const allow = names.sort().join(', ');
    app.all(path, () => Promise.reject(refusal(405, 'method not allowed', { allow })));
  }
  return app.all('/**', () => Promise.reject(notFound()));
}

/** An error for the client. `detail` may be the body of an answer from the relay. */
export const refusal = (status: number, detail: unknown, headers?: HeadersInit): HTTPError =>
  new HTTPError({ status, data: detail, headers });

const notFound = () => refusal(404, 'not found');

/** An answer that states its length, to HEAD too. */
export function reply(
  type: string,
  body: string | Uint8Array<ArrayBuffer>,
  status = 200,
  more?: HeadersInit,
): HTTPResponse {
  const headers = new Headers(more);
  headers.set('content-type', type);
  headers.set('content-length', String(Buffer.byteLength(body)));
  return new HTTPResponse(body, { status, statusText: STATUS_CODES[status], headers });
}

export const json = (body: unknown, status?: number, headers?: Headers | Record<string, string>): HTTPResponse =>
  reply(JSON_HEADERS['content-type'], JSON.stringify(body), status, {
    ...JSON_HEADERS,
    ...Object.fromEntries(new Headers(headers)),
  });

/** False for a target that h3 would take for another one: with a slash at its end, dots, escapes, or in a whole URL. */
function isAsWritten({ url, runtime }: H3Event): boolean {
  const path = runtime?.node?.req.url?.split(/[?#]/, 1)[0];
  return path === url.pathname && (path === '/' || !path.endsWith('/'));
}

function answerError(error: HTTPError, { req }: H3Event, log: Log): HTTPResponse {
  const { cause } = error;
  if (cause instanceof RelayError) return refused(statusOf(cause), cause.message);
  if (!error.unhandled)
    return refused(error.status, error.data === undefined ? error.message : error.data, error.headers);
  // A client that leaves while it sends a body is no error.
  if (!req.signal.aborted) log.error(`${req.method} request failed: ${describeError(cause)}`);
  return refused(500, 'internal error');
}

function refused(status: number, detail: unknown, headers?: Headers): HTTPResponse {
  // The rest of the body is not read, so the connection cannot be reused.
  const isUnread = status === 413 || status === 408;
  return json({ detail }, status, isUnread ? { connection: 'close' } : headers);
}
