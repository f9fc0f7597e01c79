import {
  type Adapter,
  type AudioChunk,
  type Rendered,
  type RenderRequest,
  renderRequest,
} from '../../../../lib/voice/streaming/adapter.ts';

/** A request with the settings of a new install, changed by `changes`. */
export const aRequest = (changes: Partial<RenderRequest> = {}): RenderRequest => ({
  ...renderRequest(
    {
      model: 'm',
      voice: 'v',
      sampleRate: 24_000,
      language: 'en',
      codec: 'pcm',
      optimizeStreamingLatency: 1,
      textNormalization: false,
      autoSpeechTags: false,
    },
    {
      text: 'Hello there.',
      renderMode: 'verbatim',
      expression: undefined,
      providerOptions: undefined,
      signal: new AbortController().signal,
    },
  ),
  ...changes,
});

/** Everything that an adapter renders for a request. */
export async function rendered(adapter: Adapter, request: RenderRequest) {
  const chunks: AudioChunk[] = [];
  const audio = adapter(request);
  for (;;) {
    const next = await audio.next();
    if (next.done) return { chunks, result: next.value as Rendered, pcm: Buffer.concat(chunks.map(({ pcm }) => pcm)) };
    chunks.push(next.value);
  }
}
