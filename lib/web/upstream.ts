import type { Upstream, UpstreamRequest } from '../host/upstream.ts';
import { streamOf } from './streams.ts';

/** A stream of Workers with an announced length. Without it, the platform sends every stream chunked. */
interface FixedLength {
  FixedLengthStream?: new (length: number) => TransformStream<Uint8Array, Uint8Array>;
}

/** An `Upstream` on the platform's `fetch`, for the edge. On Node, `lib/host/node/upstream.ts` is better. */
export function fetchUpstream(fetch: typeof globalThis.fetch = (...args) => globalThis.fetch(...args)): Upstream {
  return async ({ method, url, headers, body, signal }) => {
    const response = await fetch(url, {
      method,
      headers,
      signal,
      redirect: 'manual',
      ...bodyOf(body, headers, signal),
    });
    return {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: chunksOf(response.body ?? new Blob().stream(), signal),
    };
  };
}

function bodyOf(
  body: UpstreamRequest['body'],
  headers: Record<string, string>,
  signal: AbortSignal,
): RequestInit & { duplex?: 'half' } {
  if (body === undefined || typeof body === 'string' || body instanceof Uint8Array) return { body: body as BodyInit };
  const length = Object.entries(headers).find(([name]) => name.toLowerCase() === 'content-length')?.[1];
  const { FixedLengthStream } = globalThis as FixedLength;
  const stream = streamOf(body, signal);
  const isFixed = FixedLengthStream !== undefined && length !== undefined;
  return { body: isFixed ? stream.pipeThrough(new FixedLengthStream(Number(length))) : stream, duplex: 'half' };
}

/** The chunks of a body, which is cancelled when `signal` aborts, or when the iteration is left. */
function chunksOf(body: ReadableStream<Uint8Array>, signal: AbortSignal): AsyncIterable<Uint8Array> {
  const reader = body.getReader();
  // Not every platform aborts a body through the signal of its fetch, and one that is never iterated must end, too.
  const cancel = () => void reader.cancel().catch(() => {});
  signal.addEventListener('abort', cancel);
  if (signal.aborted) cancel();
  return read();

  async function* read(): AsyncGenerator<Uint8Array> {
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
}
