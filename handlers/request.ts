import type { Peer } from '../lib/access/peer.ts';
import type { Relay } from '../lib/relay.ts';
import type { Session } from '../lib/sessions/session.ts';

/** A request on its way through the route table. */
export type RelayRequest = Request & {
  /** Who sent it, as the runtime saw it. */
  peer: Peer;
  /** Parts of the path, percent-encoded as they came. */
  params: Record<string, string | undefined>;
  query: Record<string, string | string[] | undefined>;
  /** The path of its row in the route table. */
  route?: string;
  /** The caller's session, once a guard has put it there. */
  session?: Session;
  /**
   * The body as it arrives, read as fast as it is asked for; leaving it early keeps the connection. Set where the
   * runtime has better than `body`, whose reader takes over the limit of how long the body may take.
   */
  chunks?(): AsyncIterable<Uint8Array>;
};

export type Handler = (request: RelayRequest, relay: Relay) => Response | Promise<Response>;

/** Lets a request pass, or answers it. */
export type Guard = (request: RelayRequest, relay: Relay) => Response | undefined | Promise<Response | undefined>;

/** A query with one value for each name: of several the last. */
export function lastOf(query: RelayRequest['query']): Record<string, string> {
  const values: Record<string, string> = Object.create(null);
  for (const name in query) values[name] = [query[name]].flat().at(-1) ?? '';
  return values;
}

/** A percent-decoded path parameter, trimmed; empty for one that cannot be decoded. */
export const pathParam = (request: RelayRequest, name: string): string => pathSegment(request, name)?.trim() ?? '';

/** A percent-decoded path parameter as it is; null for one that cannot be decoded. */
export function pathSegment(request: RelayRequest, name: string): string | null {
  try {
    return decodeURIComponent(request.params[name] ?? '');
  } catch {
    return null;
  }
}
