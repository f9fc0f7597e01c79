import { RelayError } from '../../errors.ts';
import { pathSegment } from '../../kit/addresses.ts';
import { authHeaders } from '../basic/call.ts';
import { findProvider } from '../registry.ts';
import { type Adapter, clamped, type ProviderOptions } from './adapter.ts';
import { type AdapterDeps, callForAudio, credentialOf } from './call.ts';
import { sampleChunks } from './pcm.ts';

const PROVIDER = 'elevenlabs_tts';
const DEFAULT_RATE = 24_000;

/** Contract 05 §13, `elevenlabs_tts`. */
export const createElevenlabsTts = (deps: AdapterDeps): Adapter =>
  async function* (request) {
    const { text, model, voice, sampleRate: wanted, options, signal } = request;
    const key = await credentialOf(PROVIDER, request, deps);
    const { baseUrl } = key;
    const sampleRate = findProvider(PROVIDER)?.info.sample_rates.includes(wanted) ? wanted : DEFAULT_RATE;
    const voiceId = pathSegment(voice);
    if (voiceId === null) throw new RelayError('invalid', `${voice} is not the id of a voice`);
    const { headers, body } = await callForAudio(
      {
        provider: PROVIDER,
        url: `${baseUrl}/v1/text-to-speech/${voiceId}/stream?output_format=pcm_${sampleRate}`,
        headers: authHeaders((secret) => ({ 'xi-api-key': secret }), key),
        body: { text, model_id: model, voice_settings: voiceSettings(options) },
        sampleRate,
        signal,
      },
      deps,
    );
    for await (const pcm of sampleChunks(body)) yield { pcm, sampleRate, label: 'elevenlabs_stream' };
    const characters = headers['x-character-count'] ?? '';
    const metadata = {
      sample_rate: sampleRate,
      request_id: headers['request-id'] ?? null,
      character_count: /^\d{1,9}$/.test(characters) ? Number(characters) : null,
    };
    return { provider: PROVIDER, model, voice, metadata };
  };

/** The settings that the client requested; otherwise the account's own apply. */
function voiceSettings(options: ProviderOptions): Record<string, unknown> | undefined {
  const settings = {
    stability: clamped(options.stability, 0, 1),
    similarity_boost: clamped(options.similarityBoost, 0, 1),
    style: clamped(options.style, 0, 1),
    use_speaker_boost: options.useSpeakerBoost,
    speed: clamped(options.speed, 0.7, 1.2),
  };
  return Object.values(settings).some((value) => value !== undefined) ? settings : undefined;
}
