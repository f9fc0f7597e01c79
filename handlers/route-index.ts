import { DEVICE_ROWS } from '../lib/operations/device.ts';
import { DEVICE_PATHS } from './device-control.ts';
import type { RelayRequest, Route } from './request.ts';

/** A route found by method and path without matching. */
export interface IndexedRoute {
  route: Route;
  params: RelayRequest['params'];
}

/**
 * The routes without parameters, by method and path as in a request line, without the query. The router parses the URL and
 * its query before it tries a route, which takes a sixth of the CPU time of `/health` (18.4 against 15.3 µs, 2026-11).
 */
export function indexRoutes(routes: readonly Route[]): ReadonlyMap<string, IndexedRoute> {
  const index = new Map<string, IndexedRoute>();
  for (const route of routes) {
    const [method, path] = route;
    if (path === DEVICE_PATHS) {
      for (const device of DEVICE_ROWS) {
        index.set(`${device.method} ${device.path}`, { route, params: { command: device.path.slice(1) } });
      }
    } else if (method !== 'ALL' && /^[\w/-]*$/.test(path)) index.set(`${method} ${path}`, { route, params: {} });
  }
  return index;
}

/**
 * Parses the end of a URL that begins with `?` or `#` like itty-router: the value of each name, an array if there are
 * several.
 */
export function readQuery(end: string): RelayRequest['query'] {
  const query: Record<string, string | string[]> = Object.create(null);
  const [search = ''] = end.split('#', 1);
  // Together with an escape, Node's URLSearchParams takes any other character for a byte. URL escapes them too.
  const escaped = search.replace(/[^ -~]+/g, encodeURIComponent);
  for (const [name, value] of new URLSearchParams(escaped)) {
    const known = query[name];
    // Not copied for each value, which would take over a second for the longest URL.
    if (Array.isArray(known)) known.push(value);
    else query[name] = known ? [known, value] : value;
  }
  return query;
}
