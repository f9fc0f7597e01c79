import { H3, type H3Event, HTTPError } from 'h3';
import { PROTOCOL_VERSION } from '../messages.ts';
import { CONNECT_PATH } from '../settings.ts';

/** Totals shown by `/health`. */
export interface Counts {
  hosts_online: number;
  active_streams: number;
}

export interface BrokerHttpOptions {
  /** Null while they are unknown. Throws HTTPError for a caller that asks too often. */
  counts(event: H3Event): Counts | null | Promise<Counts | null>;
  /** Accepts the socket of an upgrade, in a runtime where upgrades are requests (edge). */
  connect?(event: H3Event): Response | Promise<Response>;
}

/** h3 would accept a path with a trailing slash, or with escapes, for one of these. */
const PATHS: ReadonlySet<string> = new Set(['/health', CONNECT_PATH]);

export const HEADERS = {
  'content-type': 'application/json',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

const answer = (status: number, body: object, headers: Record<string, string> = {}): Response =>
  new Response(JSON.stringify(body), { status, headers: { ...HEADERS, ...headers } });

/**
 * True for a socket request with a query or credentials, which proxies and logs might store. `target` is the raw request
 * target.
 */
export const hasQueryOrCredentials = (target: string, authorization: unknown): boolean =>
  target.includes('?') || (authorization !== undefined && authorization !== null);

const isUpgrade = ({ method, headers }: Request): boolean =>
  method === 'GET' && headers.get('upgrade')?.toLowerCase() === 'websocket';

/** The HTTP face of a broker, on Node and at the edge (contract 08 §7.2). Errors are `{"ok": false, "error": ...}`. */
export function createBrokerHttp({ counts, connect }: BrokerHttpOptions): H3 {
  const health = async (event: H3Event): Promise<Response> => {
    const sums = await counts(event);
    if (!sums) throw new HTTPError({ status: 503, message: 'the counter does not answer' });
    return answer(200, { ok: true, service: 'svc_reach', protocol_version: PROTOCOL_VERSION, ...sums });
  };
  const socket = (event: H3Event): Response | Promise<Response> => {
    const { req } = event;
    if (hasQueryOrCredentials(req.url, req.headers.get('authorization'))) {
      throw new HTTPError({ status: 400, message: 'neither a query nor an Authorization header is accepted' });
    }
    if (connect && isUpgrade(req)) return connect(event);
    return answer(426, { ok: false, error: 'this is a WebSocket' }, { upgrade: 'websocket' });
  };
  const refuse = (error: HTTPError): Response =>
    answer(error.status, { ok: false, error: error.unhandled ? 'internal error' : error.message });
  const notFound = () => refuse(new HTTPError({ status: 404, message: 'not found' }));
  return new H3({ silent: true, onError: refuse })
    .use(({ req }) => (PATHS.has(new URL(req.url).pathname) ? undefined : notFound()))
    .get('/health', health)
    .head('/health', health)
    .all(CONNECT_PATH, socket)
    .all('/**', notFound);
}
