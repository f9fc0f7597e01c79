import { concatBytes } from '../kit/bytes.ts';

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

/** The first `limit` bytes of a body. Leaves the rest unread, which closes the connection. */
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
