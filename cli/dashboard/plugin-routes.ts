import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { statusOf } from '../../handlers/errors.ts';
import { describeError, RelayError } from '../../lib/errors.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import type { Log } from '../../lib/log.ts';
import { readJson } from '../../lib/web/json.ts';

/** A request to a route of the plugin itself, after the dashboard has admitted it. */
export interface PluginCall {
  /** Decoded parameters of the path. */
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  /** Reads the JSON object of the body; an absent one is `{}`. Throws RelayError. */
  body(limit?: number): Promise<JsonObject>;
}

/** Method, path below the mount path, and what the body of a 200 is. `{name}` in a path is one segment. */
export type PluginRoute = readonly [method: string, path: string, answer: (call: PluginCall) => Promise<unknown>];

export interface PluginAnswer {
  status: number;
  body: unknown;
  headers: Record<string, string>;
}

/** An answer of another status, with its whole body. Unlike `RelayError`, it may pass on what the relay answered. */
export class PluginRefusal extends Error {
  readonly status: number;
  readonly detail: unknown;

  constructor(status: number, detail: unknown) {
    super('refused');
    this.status = status;
    this.detail = detail;
  }
}

/**
 * Answers the plugin's own routes (contract 07 §4.1, §4.2, §4.4). A path is split before it is decoded, and a parameter
 * that decodes to something with a slash, or to dots, is a 400. `HEAD` works where `GET` does.
 */
export function createPluginRoutes(routes: readonly PluginRoute[], log: Log) {
  const table = routes.map(([method, path, answer]) => ({ method, segments: path.split('/').slice(1), answer }));

  async function answer(req: IncomingMessage, path: string, query: string): Promise<PluginAnswer> {
    const segments = path.split('/').slice(1);
    const matching = table.filter((route) => matches(route.segments, segments));
    if (matching.length === 0) return refusal(404, 'not found');
    const method = req.method === 'HEAD' ? 'GET' : req.method;
    const route = matching.find((each) => each.method === method);
    if (!route) return refusal(405, 'method not allowed', { allow: allowedBy(matching) });
    if (method !== 'GET' && isForeignPage(req)) return refusal(403, 'this page may not change anything here');
    const call: PluginCall = {
      params: paramsOf(route.segments, segments),
      query: new URLSearchParams(query),
      body: (limit) => readJson(asRequest(req), { limit, empty: true }),
    };
    return { status: 200, body: await route.answer(call), headers: {} };
  }

  return {
    /** `path` is undecoded and begins with a slash; `query` is empty or begins with `?`. Never rejects. */
    async answer(req: IncomingMessage, path: string, query: string): Promise<PluginAnswer> {
      try {
        return await answer(req, path, query);
      } catch (error) {
        if (error instanceof PluginRefusal) return refusal(error.status, error.detail);
        if (error instanceof RelayError) {
          // The rest of the body is not read, so the connection cannot be reused.
          const isUnread = error.kind === 'too-large' || error.kind === 'timeout';
          return refusal(statusOf(error), error.message, isUnread ? { connection: 'close' } : {});
        }
        log.error(`${req.method} request failed: ${describeError(error)}`);
        return refusal(500, 'internal error');
      }
    },
  };
}

const refusal = (status: number, detail: unknown, headers: Record<string, string> = {}): PluginAnswer => ({
  status,
  body: { detail },
  headers,
});

const isParameter = (segment: string): boolean => segment.startsWith('{');

const matches = (pattern: string[], segments: string[]): boolean =>
  pattern.length === segments.length &&
  pattern.every((part, at) => (isParameter(part) ? segments[at] !== '' : part === segments[at]));

function paramsOf(pattern: string[], segments: string[]): Record<string, string> {
  const params: Record<string, string> = {};
  pattern.forEach((part, at) => {
    if (isParameter(part)) params[part.slice(1, -1)] = decodeSegment(segments[at] as string);
  });
  return params;
}

function decodeSegment(segment: string): string {
  let decoded: string;
  try {
    decoded = decodeURIComponent(segment);
  } catch {
    throw new RelayError('invalid', 'the path is not valid percent-encoding');
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: no name has control characters
  if (/[/\\\u0000-\u001f\u007f]/.test(decoded) || decoded === '.' || decoded === '..') {
    throw new RelayError('invalid', 'the path names something that cannot exist');
  }
  return decoded;
}

const allowedBy = (routes: { method: string }[]): string =>
  [...new Set(routes.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method])))].sort().join(', ');

/**
 * True if a page of another site sends the request: the dashboard's cookie alone does not tell. Browsers say so, other
 * clients send no such header.
 */
function isForeignPage({ headers }: IncomingMessage): boolean {
  const site = headers['sec-fetch-site'];
  return site !== undefined && site !== 'same-origin' && site !== 'none';
}

/** The body of a Node request as `lib/web` reads it. */
const asRequest = (req: IncomingMessage): Request =>
  new Request('http://plugin/', {
    method: 'POST',
    headers: req.headers['content-length'] === undefined ? {} : { 'content-length': req.headers['content-length'] },
    body: Readable.toWeb(req) as ReadableStream<Uint8Array>,
    duplex: 'half',
  } as RequestInit);
