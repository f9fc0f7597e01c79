import { RelayError } from '../../lib/errors.ts';
import type { Host } from '../../lib/host/index.ts';
import { transcribe } from '../../lib/voice/basic/transcribe.ts';
import { createRunDirectory } from '../../lib/voice/command.ts';
import { createVoiceCredentials } from '../../lib/voice/credentials.ts';
import { findProvider, type StreamingProvider } from '../../lib/voice/registry.ts';
import { serverDefaults } from '../../lib/voice/servers.ts';
import { voiceOutput } from '../../lib/voice/settings.ts';
import type { LocalChoice } from '../../lib/voice/setup.ts';
import { renderRequest } from '../../lib/voice/streaming/adapter.ts';
import { createAdapters } from '../../lib/voice/streaming/adapters.ts';
import { createResampler } from '../../lib/voice/streaming/resample.ts';
import { wavFile } from '../../lib/voice/streaming/wav.ts';
import { printable } from '../output.ts';
import type { Player } from './player.ts';
import { createProbe } from './probe.ts';
import type { Progress } from './progress.ts';

const SENTENCE = 'Hello, this is the voice of my own machine.';
const RATE = 24_000;
/** Hertz of audio for transcription, since some servers support no other. */
const STT_RATE = 16_000;

export interface Trial {
  tts?: LocalChoice;
  stt?: LocalChoice;
  language?: string;
  host: Host;
  player?: Player;
  progress: Progress;
  signal: AbortSignal;
}

/** Outcome of trying the choices. A type, so that it is a JSON value. */
export type Tried = {
  tts?: { seconds: number; first_audio_ms: number; total_ms: number };
  /** `text` is the transcript of the spoken sentence, or of silence if nothing speaks. */
  stt?: { text: string; total_ms: number };
  problem?: string;
  next?: string;
};

/** Speaks a sentence with the choice for speech, and transcribes it with the other choice. */
export async function tryChoices({ tts, stt, language, host, player, progress, signal }: Trial): Promise<Tried> {
  const credentials = createVoiceCredentials({ env: {} });
  const deps = { ...createProbe(signal), host, credentials };
  const tried: Tried = {};
  let pcm: Buffer = Buffer.alloc(RATE * 2);
  try {
    if (tts) {
      progress.step('Speaking a sentence.');
      const servers = { tts: { provider: 'local', local: tts } };
      const provider = findProvider('local_tts') as StreamingProvider;
      const chosen = serverDefaults(provider, servers);
      const settings = { ...voiceOutput.defaults, ...chosen, servers, ...(language && { language }) };
      const message = { text: SENTENCE, renderMode: 'verbatim', signal };
      const began = performance.now();
      const chunks: Uint8Array[] = [];
      let first = 0;
      for await (const chunk of createAdapters(deps)('local_tts')?.(renderRequest(settings, message)) ?? []) {
        if (chunks.length === 0) first = performance.now() - began;
        chunks.push(chunk.pcm);
        player?.play({ pcm: Buffer.from(chunk.pcm), sampleRate: chunk.sampleRate });
      }
      pcm = Buffer.concat(chunks);
      tried.tts = {
        seconds: pcm.length / 2 / RATE,
        first_audio_ms: Math.round(first),
        total_ms: Math.round(performance.now() - began),
      };
      await player?.finish();
    }
    if (stt) {
      progress.step('Transcribing it.');
      tried.stt = await transcribeOnce(
        deps,
        { stt, language, wav: wavFile(createResampler(RATE, STT_RATE)(pcm), STT_RATE) },
        signal,
      );
    }
    return tried;
  } catch (error) {
    player?.stop();
    if (signal.aborted || !(error instanceof RelayError)) throw error;
    const what = tts && !tried.tts ? 'speech' : 'transcription';
    return { ...tried, problem: `${what} was tried and failed: ${printable(error.message)}` };
  }
}

async function transcribeOnce(
  deps: Omit<Parameters<typeof transcribe>[0], 'settings'> & { host: Host },
  { stt, language, wav }: { stt: LocalChoice; language?: string; wav: Uint8Array },
  signal: AbortSignal,
): Promise<{ text: string; total_ms: number }> {
  const { host } = deps;
  const sections = { tts: {}, stt: { provider: 'local', local: stt, ...(language && { language }) } };
  const scope = { profile: null, configScope: 'global', configPath: null, fallbackToGlobal: false } as const;
  const settings = { basic: async () => ({ ...sections, ...scope }) };
  const directory = await createRunDirectory(host);
  try {
    const path = `${directory}/audio.wav`;
    await host.files.createExclusive(path, wav, 0o600);
    const clip = {
      fileName: 'audio.wav',
      contentType: 'audio/wav',
      size: wav.length,
      read: () => host.files.chunks(path),
      files: { path, directory },
    };
    const began = performance.now();
    const { text } = await transcribe({ ...deps, settings }, clip, null, signal);
    return { text, total_ms: Math.round(performance.now() - began) };
  } finally {
    await host.files.removeAll(directory).catch(() => {});
  }
}
