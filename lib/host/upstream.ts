/** One call to a server behind the relay. */
export interface UpstreamRequest {
  method: string;
  url: string;
  headers: Record<string, string>;
  /**
   * Chunks are read no faster than the server accepts them, and sent chunked unless `headers` has their
   * `content-length`. When the call ends early, the iteration is left; an error of the iteration fails the call.
   */
  body?: string | Uint8Array | AsyncIterable<Uint8Array>;
  /**
   * Reuses and keeps an idle connection, for repeated calls of `GET` and `HEAD`. Ignored for other methods: a kept
   * connection may be about to close, and such a call cannot be repeated.
   */
  keepAlive?: boolean;
  /**
   * Refuses addresses that the server's name resolves to, before connecting; the call rejects if none is left. Not
   * called for an address in the URL itself, nor at the edge, whose platform reaches public addresses only.
   */
  mayConnect?(address: string): boolean;
  /** Aborts the call, even in the middle of the body. */
  signal: AbortSignal;
}

export interface UpstreamResponse {
  status: number;
  /** Names in lower case. Several values of one name are joined with `, `. */
  headers: Record<string, string>;
  /**
   * The body as it arrives, read no faster than it is consumed. Leaving the loop early closes the connection. Throws when
   * the connection breaks or the call is aborted.
   */
  body: AsyncIterable<Uint8Array>;
}

/**
 * Calls a server behind the relay. Follows no redirect, repeats no call that may have reached the server, and sets no
 * limit on the time of a response. Rejects if no response comes.
 */
export type Upstream = (request: UpstreamRequest) => Promise<UpstreamResponse>;

export const isSuccess = (status: number | undefined): boolean => status !== undefined && status >= 200 && status < 300;

const REASONS: Record<string, string> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EHOSTUNREACH: 'host unreachable',
  ENETUNREACH: 'network unreachable',
  ENOTFOUND: 'host not found',
  EAI_AGAIN: 'host not found',
  EPIPE: 'connection reset',
  ETIMEDOUT: 'timed out',
};

/** Describes why a call failed, in a few words that may be shown to a client. */
export function upstreamReason(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === 'string' && REASONS[code]) return REASONS[code];
  // An error of several failed addresses has a code but no message.
  return String(message || code || 'connection failed').slice(0, 200);
}
