import { authHeaders, bearer } from '../basic/call.ts';
import { splitText } from '../basic/split.ts';
import { numberOf, textOf } from '../section.ts';
import { serverSettings } from '../servers.ts';
import { type Adapter, clamped, describeExpression, type RenderRequest } from './adapter.ts';
import { type AdapterDeps, callForAudio, credentialOf } from './call.ts';
import { sampleChunks } from './pcm.ts';

/** Hertz of the provider's raw PCM, and of what comes out. */
const SAMPLE_RATE = 24_000;
/** Code points of one request (contract 05 §7). */
const MAX_INPUT = 4096;

/** Contract 05 §13, `openai_tts`; `local_tts` sends the same requests to the owner's server (§18). */
export const createOpenaiTts = (deps: AdapterDeps, provider: 'openai_tts' | 'local_tts' = 'openai_tts'): Adapter =>
  async function* (request) {
    const key = await credentialOf(provider, request, deps);
    const { baseUrl } = key;
    const { model, voice, signal } = request;
    const own = serverSettings(provider, request.servers ?? {});
    const inputs = splitText(request.text, MAX_INPUT);
    for (const input of inputs) {
      const response = await callForAudio(
        {
          provider,
          url: `${baseUrl}/audio/speech`,
          headers: authHeaders(bearer, key),
          body: {
            model,
            voice,
            input,
            response_format: textOf(own.response_format)?.toLowerCase() === 'wav' ? 'wav' : 'pcm',
            instructions: instructionsFor(request),
            speed: speedFor(request, provider),
          },
          sampleRate: SAMPLE_RATE,
          assumedRate: numberOf(own.sample_rate),
          signal,
        },
        deps,
      );
      for await (const pcm of sampleChunks(response.body)) {
        yield { pcm, sampleRate: SAMPLE_RATE, label: `${provider}_stream` };
      }
    }
    return { provider, model, voice, metadata: { sample_rate: SAMPLE_RATE, requests: inputs.length } };
  };

/** The speed that the client requests, else the configured one; undefined for the normal one. */
export function speedFor({ options, servers = {} }: RenderRequest, provider: string): number | undefined {
  const configured = numberOf(serverSettings(provider, servers).speed) ?? numberOf(servers.tts?.speed);
  return clamped(options.speed ?? (configured === 1 ? undefined : configured), 0.25, 4);
}

/** Instructions on style, in a separate field so that the text stays unchanged; the `tts-1` models have none. */
function instructionsFor({ model, options, expression }: RenderRequest): string | undefined {
  if (model.startsWith('tts-1')) return undefined;
  return [options.instructions ?? '', describeExpression(expression)].filter(Boolean).join('\n') || undefined;
}
