import type { Peer } from '../lib/access/peer.ts';
import { RelayError } from '../lib/errors.ts';
import type { ReadBudgets } from '../lib/kit/byte-budget.ts';
import type { HangUp } from '../lib/kit/event.ts';
import type { Listener } from '../lib/pairing/mint.ts';
import type { Relay } from '../lib/relay.ts';
import type { Session } from '../lib/sessions/session.ts';
import type { VoicePrincipal } from '../lib/voice/principal.ts';

/** A request on its way through the route table. */
export type RelayRequest = Request & {
  /** The sender as the runtime saw it, or the client for whom the dashboard's ingress forwards, with proof. */
  peer: Peer;
  /** Version and target of the request line, as sent (`1.1`, `/health`). Absent at the edge. */
  readonly httpVersion?: string;
  readonly target?: string;
  /** True if the runtime is about to upgrade it; the headers alone do not prove that. */
  isHandshake?: boolean;
  /** Parts of the path, still percent-encoded. */
  params: Record<string, string | undefined>;
  query: Record<string, string | string[] | undefined>;
  /** The caller's session, set by a guard. */
  session?: Session;
  /**
   * Checks the session and its grant again once the body has arrived, for which the client may have taken a minute. Set by
   * a guard.
   * @throws RelayError `unauthorized`, `forbidden`
   */
  readmit?(): void;
  /** The caller of a voice route, set by the guard `voice(grant)`. A session is in `session` too. */
  voice?: VoicePrincipal;
  /**
   * The body as it arrives, with backpressure. Leaving it early keeps the connection. Set if the runtime has a better way
   * than `body`. Its reader also enforces the time limit of the body.
   */
  chunks?(): AsyncIterable<Uint8Array>;
  /** Aborts like `signal`. Set if the runtime has a cheaper way. */
  readonly hangUp?: HangUp;
  /** Limits the memory of long bodies. */
  budgets?: ReadBudgets;
};

export const hangUpOf = (request: RelayRequest): HangUp => request.hangUp ?? request.signal;

export type Handler = (request: RelayRequest, relay: Relay) => Response | Promise<Response>;

/** Returns nothing to let the request pass, or the response that refuses it. */
export type Guard = (request: RelayRequest, relay: Relay) => Response | undefined | Promise<Response | undefined>;

/**
 * This relay's own address: on a host, where it listens; at the edge, `RELAY_PUBLIC_URL`, else the origin of this request,
 * so that no other request influences it (contract 01 §12).
 */
export function ownAddress({ peer, url }: RelayRequest, { config, listener }: Relay): Listener {
  if (peer.via !== 'edge') return listener;
  const { protocol, hostname, port } = new URL(config.publicUrl ?? url);
  const tls = protocol === 'https:';
  return { host: hostname, port: Number(port) || (tls ? 443 : 80), tls };
}

/** A query with one value per name, the last one of several. */
export function lastOf(query: RelayRequest['query']): Record<string, string> {
  const values: Record<string, string> = Object.create(null);
  for (const name in query) values[name] = [query[name]].flat().at(-1) ?? '';
  return values;
}

/** An integer of a query. @throws RelayError `invalid` for anything but an integer in range. */
export function integerOf(
  text: string | undefined,
  name: string,
  { min, max = Number.MAX_SAFE_INTEGER, otherwise }: { min: number; max?: number; otherwise: number },
): number {
  if (text === undefined) return otherwise;
  const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  throw new RelayError('invalid', `${name} must be an integer ${range}`);
}

/** True if a query value is a word for yes. */
export const isYes = (value: string | undefined): boolean => value !== undefined && /^(?:1|true|yes)$/i.test(value);

/** A percent-decoded path parameter, trimmed. Empty if it cannot be decoded. */
export const pathParam = (request: RelayRequest, name: string): string => pathSegment(request, name)?.trim() ?? '';

/** A percent-decoded path parameter. Null if it cannot be decoded. */
export function pathSegment(request: RelayRequest, name: string): string | null {
  try {
    return decodeURIComponent(request.params[name] ?? '');
  } catch {
    return null;
  }
}

/** Path and query of an absolute URL, as sent. */
export const pathOf = (url: string): string => url.slice(url.indexOf('/', url.indexOf('//') + 2));

/** A row of the route table. */
export type Route = readonly [method: string, path: string, guard: Guard, handler: Handler];
