import { authHeaders, bearer } from '../basic/call.ts';
import { type Adapter, clamped } from './adapter.ts';
import { type AdapterDeps, callForAudio, credentialOf } from './call.ts';
import { sampleChunks } from './pcm.ts';

const PROVIDER = 'xai_tts';
/** Supported sample rates of xAI, as in `@ai-sdk/xai` 5.0. */
const RATES = [8000, 16_000, 22_050, 24_000, 44_100, 48_000];
const DEFAULT_RATE = 24_000;
/** A first sentence that deserves a pause after it. */
const FIRST_SENTENCE = /^[^.!?]{11,119}[.!?](?=\s)/;
const TAG = /\[[^[\]\n]{1,40}\]|<\/?[a-z][^<>\n]{0,40}>/i;

/** Contract 05 §13, `xai_tts`. */
export const createXaiTts = (deps: AdapterDeps): Adapter =>
  async function* (request) {
    const { signal, voice, language, options } = request;
    const sampleRate = RATES.includes(request.sampleRate) ? request.sampleRate : DEFAULT_RATE;
    const key = await credentialOf(PROVIDER, request, deps);
    const { baseUrl } = key;
    const { body } = await callForAudio(
      {
        provider: PROVIDER,
        url: `${baseUrl.replace(/\/v1$/, '')}/v1/tts`,
        headers: authHeaders(bearer, key),
        body: {
          text: request.autoSpeechTags ? withSpeechTags(request.text) : request.text,
          voice_id: voice,
          language,
          output_format: { codec: 'pcm', sample_rate: sampleRate },
          optimize_streaming_latency: latencyOf(request.optimizeStreamingLatency),
          text_normalization: request.textNormalization,
          speed: clamped(options.speed, 0.7, 1.5),
        },
        sampleRate,
        signal,
      },
      deps,
    );
    for await (const pcm of sampleChunks(body)) yield { pcm, sampleRate, label: 'xai_tts_stream' };
    return { provider: PROVIDER, model: 'xai-tts', voice, metadata: { sample_rate: sampleRate, language } };
  };

/** The latency level of xAI: 0, 1 or 2, of which 2 answers soonest. */
export const latencyOf = (step: number): number => Math.round(Math.min(Math.max(step, 0), 2));

/**
 * A text with pauses as xAI's speech tags: at blank lines, and after a short first sentence of a text that has no tag
 * (contract 05 §13, `auto_speech_tags`). Other line ends become spaces.
 */
export function withSpeechTags(text: string): string {
  const paused = text.trim().replace(/\s+/g, (space) => {
    const lineEnds = space.match(/\r\n|\r|\n/g)?.length ?? 0;
    return lineEnds > 1 ? ' [pause] ' : lineEnds === 1 ? ' ' : space;
  });
  return TAG.test(paused) ? paused : paused.replace(FIRST_SENTENCE, '$& [pause]');
}
