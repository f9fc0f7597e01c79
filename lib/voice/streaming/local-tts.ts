import { RelayError } from '../../errors.ts';
import { NO_PROGRAMS } from '../command.ts';
import { numberOf } from '../section.ts';
import { commandOf, PROGRAM_MODEL, PROGRAM_VOICE, serverSettings } from '../servers.ts';
import { checkName, speakByCommand } from '../speech-command.ts';
import type { Adapter, RenderRequest } from './adapter.ts';
import type { AdapterDeps } from './call.ts';
import { decodeSamples } from './decode.ts';
import { createOpenaiTts, speedFor } from './openai-tts.ts';
import { sampleChunks } from './pcm.ts';

const PROVIDER = 'local_tts';
const SAMPLE_RATE = 24_000;
/** Hertz of a program's raw samples, unless `sample_rate` is set: that of most voices of piper. */
const PROGRAM_RATE = 22_050;

/** The owner's own server or program (contract 05 §18). */
export const createLocalTts = (deps: AdapterDeps): Adapter => {
  const server = createOpenaiTts(deps, PROVIDER);
  return async function* (request) {
    const command = commandOf('tts', request.servers?.tts ?? {});
    if (!command) return yield* server(request);
    if (!deps.host) throw new RelayError('unavailable', NO_PROGRAMS);
    const { model, voice } = request;
    const own = serverSettings(PROVIDER, request.servers ?? {});
    checkNames(request);
    const speed = speedFor(request, PROVIDER) ?? 1;
    const speech = { command, text: request.text, voice, model, language: request.language, speed };
    const decoding = {
      // Programs have no labels; this one lets MP3 be recognised by its first bytes, which cannot be decoded here.
      contentType: 'audio/mpeg',
      assumedRate: numberOf(own.sample_rate) ?? PROGRAM_RATE,
      rate: SAMPLE_RATE,
      name: 'tts.local.command',
    };
    const samples = decodeSamples(speakByCommand(deps.host, speech, request.signal), decoding);
    for await (const pcm of sampleChunks(samples)) yield { pcm, sampleRate: SAMPLE_RATE, label: `${PROVIDER}_stream` };
    return { provider: PROVIDER, model, voice, metadata: { sample_rate: SAMPLE_RATE } };
  };
};

/** Refuses names from a client that might be a path or an option; the owner may configure anything. */
function checkNames({ voice, model, language, servers = {} }: RenderRequest): void {
  const own = serverSettings(PROVIDER, servers);
  if (voice !== own.voice && voice !== own.voice_id && voice !== PROGRAM_VOICE) checkName(voice, 'voice');
  if (model !== own.model && model !== PROGRAM_MODEL) checkName(model, 'model');
  if (language !== own.language) checkName(language, 'language');
}
