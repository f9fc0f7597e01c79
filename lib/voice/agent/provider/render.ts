import { RelayError } from '../../../errors.ts';
import { voiceOutput } from '../../settings.ts';
import { renderRequest } from '../../streaming/adapter.ts';
import type { Adapters } from '../../streaming/adapters.ts';
import { createResampler, type Resampler } from '../../streaming/resample.ts';
import type { ProviderOptions } from './provider.ts';

/** A text that the relay has a provider read aloud. */
export interface Speech
  extends Pick<ProviderOptions, 'model' | 'voice' | 'sampleRate' | 'headers' | 'oauthPath' | 'servers' | 'signal'> {
  provider: string;
  text: string;
}

/**
 * Reads a text aloud, pulled: whole 16-bit samples at the session's rate. Leaving the loop early closes the connection.
 * @throws RelayError whose message may be shown to a client, or the reason of the signal.
 */
export type RenderSpeech = (speech: Speech) => AsyncGenerator<Uint8Array>;

/** Renders on a second, short connection to the provider, which has no tools there (contract 06 §7.3). */
export const createSpeechRenderer = (adapters: Adapters): RenderSpeech =>
  async function* ({ provider, text, model, voice, sampleRate, headers, oauthPath, servers, signal }) {
    const adapter = adapters(provider);
    if (!adapter) throw new RelayError('internal', 'there is no adapter for the voice provider of the session');
    const settings = { ...voiceOutput.defaults, model, voice, sampleRate, headers, oauthPath, servers };
    const message = { text, renderMode: 'verbatim', signal };
    let resampler: { rate: number; resample: Resampler } | undefined;
    for await (const chunk of adapter(renderRequest(settings, message))) {
      if (resampler?.rate !== chunk.sampleRate) {
        resampler = { rate: chunk.sampleRate, resample: createResampler(chunk.sampleRate, sampleRate) };
      }
      const pcm = resampler.resample(chunk.pcm);
      if (pcm.length > 0) yield pcm;
    }
  };
