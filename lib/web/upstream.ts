import { concatBytes } from '../kit/bytes.ts';

/** One call to a server behind the relay. */
export interface UpstreamRequest {
  method: 'GET' | 'POST';
  url: string;
  headers: Record<string, string>;
  body?: string;
  /** Ends the call, also in the middle of the body. */
  signal: AbortSignal;
}

export interface UpstreamResponse {
  status: number;
  /**
   * The body as it arrives. It is read as fast as it is asked for; leaving the loop early closes the connection.
   * Throws when the connection breaks or the call is aborted.
   */
  body: AsyncIterable<Uint8Array>;
}

/**
 * Calls a server behind the relay: no redirect is followed, nothing is retried, and there is no limit on how long an
 * answer takes. Rejects when no answer can be had.
 */
export type Upstream = (request: UpstreamRequest) => Promise<UpstreamResponse>;

/** An `Upstream` out of the platform's `fetch`: for the edge. On Node `lib/host/node/upstream.ts` does better. */
export function fetchUpstream(fetch: typeof globalThis.fetch = (...args) => globalThis.fetch(...args)): Upstream {
  return async ({ method, url, headers, body, signal }) => {
    const response = await fetch(url, { method, headers, body, signal, redirect: 'manual' });
    return { status: response.status, body: chunksOf(response.body, signal) };
  };
}

async function* chunksOf(body: ReadableStream<Uint8Array> | null, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  if (!body) return;
  const reader = body.getReader();
  // A fetch that has answered is not ended by its signal on every platform.
  const cancel = () => void reader.cancel().catch(() => {});
  signal.addEventListener('abort', cancel);
  try {
    for (;;) {
      signal.throwIfAborted();
      const { done, value } = await reader.read();
      signal.throwIfAborted();
      if (done) return;
      yield value;
    }
  } finally {
    signal.removeEventListener('abort', cancel);
    cancel();
  }
}

/** The first `limit` bytes of a body. The rest is not read: that closes the connection. */
export async function readUpTo(body: AsyncIterable<Uint8Array>, limit: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    const kept = chunk.subarray(0, limit - size);
    chunks.push(kept);
    size += kept.length;
    if (size === limit) break;
  }
  return concatBytes(...chunks);
}

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
  // The error of several failed addresses has a code and no message.
  return String(message || code || 'connection failed').slice(0, 200);
}
