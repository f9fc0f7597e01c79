import { createNodeUpstream } from '../../../../lib/host/node/upstream.ts';
import { createNodeDialUpstream } from '../../../../lib/host/node/upstream-socket.ts';
import { type Clock, systemClock } from '../../../../lib/kit/clock.ts';
import { createVoiceCredentials } from '../../../../lib/voice/credentials.ts';
import {
  type Adapter,
  type AudioChunk,
  type Rendered,
  type RenderRequest,
  type RenderSettings,
  renderRequest,
} from '../../../../lib/voice/streaming/adapter.ts';
import { createAdapters } from '../../../../lib/voice/streaming/adapters.ts';
import { startProvider } from '../../../support/voice/provider.ts';

export const SETTINGS: RenderSettings = {
  model: 'm',
  voice: 'v',
  sampleRate: 24_000,
  language: 'en',
  codec: 'pcm',
  optimizeStreamingLatency: 1,
  textNormalization: false,
  autoSpeechTags: false,
};

/** A request with the settings of a new install, changed by `changes`. */
export const aRequest = (changes: Partial<RenderRequest> = {}): RenderRequest => ({
  ...renderRequest(SETTINGS, {
    text: 'Hello there.',
    renderMode: 'verbatim',
    expression: undefined,
    providerOptions: undefined,
    signal: new AbortController().signal,
  }),
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

export const SECRET = 'sk-live-0123456789abcdef';

/** Every adapter against a fake provider on loopback. */
export async function startAdapters(clock: Clock = systemClock) {
  const provider = await startProvider();
  const http = `${provider.url}/v1`;
  const credentials = createVoiceCredentials({
    env: {
      OPENAI_API_KEY: SECRET,
      OPENAI_BASE_URL: http,
      ELEVENLABS_API_KEY: SECRET,
      ELEVENLABS_BASE_URL: provider.url,
      XAI_API_KEY: SECRET,
      XAI_BASE_URL: http,
    },
  });
  const deps = { upstream: createNodeUpstream(), dialUpstream: createNodeDialUpstream(), clock, credentials };
  const adapters = createAdapters(deps);
  const adapter = (id: string): Adapter => {
    const found = adapters(id);
    if (!found) throw new Error(`there is no adapter ${id}`);
    return found;
  };
  return { provider, deps, adapter };
}

/** Bytes that differ from each other, so that a lost or doubled one shows. */
export const audioBytes = (length: number): Buffer =>
  Buffer.from(Uint8Array.from({ length }, (_, at) => (at * 7 + (at >> 8)) & 0xff));

export const REALTIME = ['openai_realtime', 'xai_realtime'];

export const audioDelta = (bytes: Uint8Array) => ({
  type: 'response.output_audio.delta',
  delta: Buffer.from(bytes).toString('base64'),
});
export const DONE = { type: 'response.done', response: { status: 'completed' } };
