import { renderRequest } from '../../../lib/voice/streaming/adapter.ts';
import { renderStub } from '../../../lib/voice/streaming/stub.ts';

/** The samples that the provider `stub` makes of a text. */
export async function stubPcm({
  text,
  sampleRate = 24_000,
  emotion = 'neutral',
}: {
  text: string;
  sampleRate?: number;
  emotion?: string;
}): Promise<Buffer> {
  const request = renderRequest(
    {
      model: '',
      voice: '',
      sampleRate,
      language: 'en',
      codec: 'pcm',
      optimizeStreamingLatency: 1,
      textNormalization: false,
      autoSpeechTags: false,
    },
    {
      text,
      renderMode: 'verbatim',
      expression: { emotion },
      providerOptions: undefined,
      signal: new AbortController().signal,
    },
  );
  const pcm: Uint8Array[] = [];
  for await (const chunk of renderStub(request)) pcm.push(chunk.pcm);
  return Buffer.concat(pcm);
}
