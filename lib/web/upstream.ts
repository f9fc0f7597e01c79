import type { Upstream } from '../host/upstream.ts';

/** An `Upstream` on the platform's `fetch`, for the edge. `lib/host/node/upstream.ts` is the better one on Node. */
export function fetchUpstream(fetch: typeof globalThis.fetch = (...args) => globalThis.fetch(...args)): Upstream {
  return async ({ method, url, headers, body, signal }) => {
    const response = await fetch(url, { method, headers, body, signal, redirect: 'manual' });
    return { status: response.status, body: chunksOf(response.body, signal) };
  };
}

async function* chunksOf(body: ReadableStream<Uint8Array> | null, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  if (!body) return;
  const reader = body.getReader();
  // Not every platform aborts a body through the signal of its fetch.
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
