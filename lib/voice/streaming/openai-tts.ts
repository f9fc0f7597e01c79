import { authHeaders } from '../basic/call.ts';
import { splitText } from '../basic/split.ts';
import { type Adapter, clamped, describeExpression, type RenderRequest } from './adapter.ts';
import { type AdapterParts, callForAudio, credentialOf } from './call.ts';
import { sampleChunks } from './pcm.ts';

const PROVIDER = 'openai_tts';
/** The only rate of the provider's raw PCM. */
const SAMPLE_RATE = 24_000;
/** Code points of one request (contract 05 §7). */
const MAX_INPUT = 4096;

/** Contract 05 §13, `openai_tts`. */
export const createOpenaiTts = (parts: AdapterParts): Adapter =>
  async function* (request) {
    const key = await credentialOf(PROVIDER, request, parts);
    const { baseUrl } = key;
    const { model, voice, signal, options } = request;
    const inputs = splitText(request.text, MAX_INPUT);
    for (const input of inputs) {
      const response = await callForAudio(
        {
          provider: PROVIDER,
          url: `${baseUrl}/audio/speech`,
          headers: authHeaders((secret) => ({ authorization: `Bearer ${secret}` }), key),
          body: {
            model,
            voice,
            input,
            response_format: 'pcm',
            instructions: instructionsFor(request),
            speed: clamped(options.speed, 0.25, 4),
          },
          sampleRate: SAMPLE_RATE,
          signal,
        },
        parts,
      );
      for await (const pcm of sampleChunks(response.body)) {
        yield { pcm, sampleRate: SAMPLE_RATE, label: 'openai_tts_stream' };
      }
    }
    return { provider: PROVIDER, model, voice, metadata: { sample_rate: SAMPLE_RATE, requests: inputs.length } };
  };

/** How to speak, in a field of its own so that the text stays as it is; the `tts-1` models have none. */
function instructionsFor({ model, options, expression }: RenderRequest): string | undefined {
  if (model.startsWith('tts-1')) return undefined;
  return [options.instructions ?? '', describeExpression(expression)].filter(Boolean).join('\n') || undefined;
}
