import { pageOf } from '../lib/access/page.ts';
import type { Relay } from '../lib/relay.ts';
import { errorResponse } from '../lib/web/json.ts';
import { WebResponse } from '../lib/web/response.ts';
import { pathOf, type RelayRequest } from './request.ts';

/** Paths that the app calls at its mailbox, including those that answer there that only home serves them. */
const OF_APP =
  /^\/(?:(?:api|chat|clipboard|context|media|notifications|phone|push|sessions|usage|voice)\/|(?:health|sessions|ws|relay\/freeze)(?:[?#]|$))/;
/** Paths of home that its app calls without a session. */
const OPEN_AT_HOME = /^\/(?:health|sessions\/nonce|ws)(?:[?#]|$)/;
const PREFLIGHT = {
  'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
  'access-control-allow-headers':
    'authorization, content-type, dpop, idempotency-key, if-match, if-none-match, if-range, range',
  'access-control-max-age': '600',
};
const EXPOSED = 'dpop-nonce, retry-after, content-range, content-disposition, x-media-sensitive';

/** CORS for a page of the other side of a mirror. */
export interface CrossOrigin {
  preflight?: Response;
  /** Lets the page read the answer, unless it answers for a session of another page. */
  allow(response: Response): Response;
}

/**
 * Lets a page of the other side of a mirror call this one (contract 12 §3): CORS per the Fetch standard for its exact
 * origin, without browser credentials. At the edge, that is a page in which devices of home were paired; at home, it is the
 * page of the edge. Undefined for every other request.
 */
export function crossOrigin(request: RelayRequest, relay: Relay): CrossOrigin | undefined {
  const page = pageOf(request.headers);
  if (!page || page.isOwn || !mayRead(page.origin, request, relay)) return undefined;
  const origin = { 'access-control-allow-origin': page.origin, vary: 'Origin' };
  return {
    ...(request.method === 'OPTIONS' &&
      request.headers.has('access-control-request-method') && {
        preflight: new WebResponse(null, { status: 204, headers: { ...origin, ...PREFLIGHT } }),
      }),
    allow(response) {
      const { session } = request;
      if (session && session.device.origin !== page.origin) return response;
      for (const [name, value] of Object.entries(origin)) response.headers.set(name, value);
      response.headers.set('access-control-expose-headers', EXPOSED);
      return response;
    },
  };
}

function mayRead(origin: string, { method, url, headers }: RelayRequest, { edgeMirror, homeMirror }: Relay): boolean {
  if (edgeMirror) return edgeMirror.isPage(origin) && OF_APP.test(pathOf(url));
  if (homeMirror?.edgePage() !== origin) return false;
  // In a browser on this machine, a call without a bearer could be taken for the operator's.
  return method === 'OPTIONS' || headers.has('authorization') || OPEN_AT_HOME.test(pathOf(url));
}

/**
 * True for an upgrade, at the edge of a home, by a page that neither belongs to this relay nor was paired at home (contract
 * 12 §3).
 */
export function foreignPage({ headers }: RelayRequest, { edgeMirror }: Relay): Response | undefined {
  const page = edgeMirror?.isExpected() ? pageOf(headers) : undefined;
  if (!page || page.isOwn || edgeMirror?.isPage(page.origin)) return undefined;
  return errorResponse(403, 'pages of other origins may not connect');
}
