const encode = (text: string) => new TextEncoder().encode(text);

/** A response body that is fed by the test and broken by an abort. */
export function createBody(signal: AbortSignal) {
  const stream = new TransformStream<Uint8Array, Uint8Array>(undefined, { highWaterMark: 100 }, { highWaterMark: 0 });
  const writer = stream.writable.getWriter();
  writer.closed.catch(() => {});
  signal.addEventListener('abort', () => void writer.abort(new Error('aborted')).catch(() => {}));
  let pulled = 0;
  async function* chunks(): AsyncGenerator<Uint8Array> {
    const reader = stream.readable.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      pulled++;
      yield value;
    }
  }
  return {
    chunks: chunks(),
    event: (data: unknown) => void writer.write(encode(`data: ${JSON.stringify(data)}\n\n`)).catch(() => {}),
    raw: (text: string) => void writer.write(encode(text)).catch(() => {}),
    end: () => void writer.close().catch(() => {}),
    get pulled() {
      return pulled;
    },
  };
}
