/** One call to a server behind the relay. */
export interface UpstreamRequest {
  method: 'GET' | 'POST';
  url: string;
  headers: Record<string, string>;
  body?: string;
  /** Aborts the call, even in the middle of the body. */
  signal: AbortSignal;
}

export interface UpstreamResponse {
  status: number;
  /**
   * The body as it arrives, read no faster than it is consumed. Leaving the loop early closes the connection. Throws when
   * the connection breaks or the call is aborted.
   */
  body: AsyncIterable<Uint8Array>;
}

/**
 * Calls a server behind the relay. Follows no redirect, retries nothing, and sets no limit on the time of a response.
 * Rejects without a response.
 */
export type Upstream = (request: UpstreamRequest) => Promise<UpstreamResponse>;

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

/** Why a call failed, in a few words that may be shown to a client. */
export function upstreamReason(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === 'string' && REASONS[code]) return REASONS[code];
  // An error of several failed addresses has a code but no message.
  return String(message || code || 'connection failed').slice(0, 200);
}
