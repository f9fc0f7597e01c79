import type { Upstream } from '../host/upstream.ts';

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
