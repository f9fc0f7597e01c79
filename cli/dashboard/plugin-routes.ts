import type { H3 } from 'h3';
import { RelayError } from '../../lib/errors.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import type { Log } from '../../lib/log.ts';
import { readJson } from '../../lib/web/json.ts';
import { createRouteApp, json, type Method, type Route, refusal } from './route-app.ts';

/** A request to a route of the plugin itself, after the dashboard has admitted it. */
export interface PluginCall {
  /** Decoded parameters of the path. */
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  /** Reads the JSON object of the body; an absent one is `{}`. Throws RelayError. */
  body(limit?: number): Promise<JsonObject>;
}

/** Method, path below the mount path, and the body of a 200. `:name` in a path is one segment. */
export type PluginRoute = readonly [method: Method, path: string, answer: (call: PluginCall) => Promise<unknown>];

/**
 * The app of the plugin's own routes below `mountPath` (contract 07 §4.1, §4.2, §4.4). A parameter that decodes to something
 * with a slash, or to dots, is a 400.
 */
export function createPluginRoutes(routes: readonly PluginRoute[], mountPath: string, log: Log): H3 {
  const rows = routes.map(
    ([method, path, answer]): Route => [
      method,
      mountPath + path,
      async ({ req, url, context: { params = {} } }) => {
        if (method !== 'GET' && isForeignPage(req)) throw refusal(403, 'this page may not change anything here');
        const decoded = Object.entries(params).map(([name, segment]) => [name, decodeSegment(segment)]);
        const body = (limit?: number) => readJson(req, { limit, empty: true });
        return json(await answer({ params: Object.fromEntries(decoded), query: url.searchParams, body }));
      },
    ],
  );
  return createRouteApp(rows, log);
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

/**
 * True if a page of another site sends the request: the dashboard's cookie alone does not tell. Browsers say so, other
 * clients send no such header.
 */
function isForeignPage({ headers }: Request): boolean {
  const site = headers.get('sec-fetch-site');
  return site !== null && site !== 'same-origin' && site !== 'none';
}
