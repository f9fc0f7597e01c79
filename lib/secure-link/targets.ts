import {
  createIngressMatcher,
  ingressRoutes,
  ingressSockets,
  matchIngressSocket,
} from '../dashboard/ingress-routes.ts';

/** The namespaces that are proxied to another server of this host. */
export type Namespace = 'api' | 'dashboard';

/** The destination of a request to the Secure Link listener (contract 08 §3). Every target outside the table is refused. */
export type Target =
  | { kind: 'health' }
  /** A route of the relay, in process. `path` includes the query. */
  | { kind: 'route'; path: string; needsBearer: boolean }
  /** A socket of the relay. */
  | { kind: 'socket'; path: string }
  /** `path` for the upstream: the bytes after the prefix unchanged, including the query. */
  | { kind: 'proxy'; namespace: Namespace; path: string }
  | { kind: 'refused'; status: 400 | 404 | 405; error: string; allow?: string };

const NO_METHOD = 'method not allowed';
const NOT_FOUND: Target = { kind: 'refused', status: 404, error: 'not found' };
const ABSOLUTE: Target = { kind: 'refused', status: 400, error: 'the request target has to be a path' };
const UNSAFE: Target = { kind: 'refused', status: 400, error: 'unsafe proxy path' };
const NO_TUNNEL: Target = { kind: 'refused', status: 405, error: NO_METHOD };

/** `allow` lists the methods of a known path. */
const wrongMethod = (allow: string): Target => ({ kind: 'refused', status: 405, error: NO_METHOD, allow });

const ABSOLUTE_FORM = /^[a-z][\d+.a-z-]*:\/\//i;
/**
 * Path parts that a server behind might interpret differently: escaped separators and dots, empty segments, dot segments.
 */
const UNSAFE_PATH = /[\\#]|\/\/|%(?:2f|5c|2e)|\/\.{1,2}(?:\/|$)/i;

/** The client-safe routes of the relay that are mounted under `/relay`. Health has a separate row, `/relay/*` has none. */
export const mountedRoutes = ingressRoutes.filter(([, path]) => path !== '/health' && !path.startsWith('/relay/'));
export const mountedSockets = ingressSockets;

const PREFIX = '/relay';
/**
 * Served at the root too, since existing clients drop the prefix. The rules are the same, and no operator routes are
 * included.
 */
const AT_ROOT = ['/sessions', '/voice'];
const INFO = '/relay/info';

/** Returns the function that decides on a method and a raw request target, which is never decoded or normalised. */
export function createTargets(): (method: string, target: string) => Target {
  const match = createIngressMatcher(mountedRoutes);

  function ofRelay(method: string, path: string, query: string): Target {
    const isRead = method === 'GET' || method === 'HEAD';
    if (path === '/health') return isRead ? { kind: 'health' } : wrongMethod('GET, HEAD');
    const matched = match(method, path);
    if (matched.kind === 'method') return wrongMethod(matched.allow);
    // The guard of voice also accepts a bearer of the API, and answers in the form of its area.
    const needsBearer = !path.startsWith('/voice/');
    if (matched.kind === 'route') return { kind: 'route', path: matched.path + query, needsBearer };
    const socketPath = matchIngressSocket(path)?.path;
    if (!socketPath) return NOT_FOUND;
    return isRead ? { kind: 'socket', path: socketPath } : wrongMethod('GET');
  }

  return (method, target) => {
    if (method === 'CONNECT' || method === 'TRACE') return NO_TUNNEL;
    if (ABSOLUTE_FORM.test(target)) return ABSOLUTE;
    const at = target.indexOf('?');
    const path = at < 0 ? target : target.slice(0, at);
    const query = at < 0 ? '' : target.slice(at);
    if (path === INFO) {
      const isRead = method === 'GET' || method === 'HEAD';
      return isRead ? { kind: 'route', path: target, needsBearer: true } : wrongMethod('GET, HEAD');
    }
    if (AT_ROOT.some((prefix) => isUnder(path, prefix))) return ofRelay(method, path, query);
    if (path.startsWith(`${PREFIX}/`)) return ofRelay(method, path.slice(PREFIX.length), query);
    const namespace = namespaceOf(path);
    if (namespace === null) return NOT_FOUND;
    if (UNSAFE_PATH.test(path)) return UNSAFE;
    return { kind: 'proxy', namespace, path: (path.slice(namespace.length + 1) || '/') + query };
  };
}

const isUnder = (path: string, prefix: string): boolean =>
  path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/');

function namespaceOf(path: string): Namespace | null {
  if (isUnder(path, '/api')) return 'api';
  return isUnder(path, '/dashboard') ? 'dashboard' : null;
}
