import { createByteBuffer } from '../kit/byte-buffer.ts';

/** Chunks of a web stream. Leaving the loop early leaves the rest unread. */
export async function* chunksOf(body: ReadableStream<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  if (!body) return;
  const reader = body.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    reader.releaseLock();
  }
}

/** The first `limit` bytes of a body, in chunks of any size. Leaves the rest unread, which closes the connection. */
export async function readUpTo(body: AsyncIterable<Uint8Array>, limit: number): Promise<Uint8Array> {
  const buffer = createByteBuffer(limit);
  for await (const chunk of body) {
    buffer.push(chunk);
    if (buffer.size === limit) break;
  }
  return buffer.bytes();
}

/**
 * A web stream of chunks, which are read on demand. Leaves the iteration when the stream is cancelled or `signal` aborts,
 * since not every platform cancels the body of a failed request.
 */
export function streamOf(chunks: AsyncIterable<Uint8Array>, signal: AbortSignal): ReadableStream<Uint8Array> {
  const iterator = chunks[Symbol.asyncIterator]();
  const leave = async () => {
    signal.removeEventListener('abort', leave);
    await iterator.return?.().catch(() => {});
  };
  signal.addEventListener('abort', leave);
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      signal.throwIfAborted();
      const { done, value } = await iterator.next();
      if (!done) return controller.enqueue(value);
      signal.removeEventListener('abort', leave);
      controller.close();
    },
    cancel: leave,
  });
}
