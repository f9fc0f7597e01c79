import { resolve } from 'node:path';
import type { Command } from 'cac';
import { keepAlive } from '../keep-alive.ts';
import { asRate, asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, line, printable, printJson, UsageError } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import { readAll } from '../stdin.ts';
import { findPlayer, type Player } from './player.ts';
import { createProgress } from './progress.ts';
import { profileOption, type VoiceRelay, withVoiceRelay } from './relay.ts';
import { asSpeed, type Speech, type SpeechRequest, speak } from './speech.ts';
import { checkOut, writeOut } from './wav-output.ts';

/** Code points that the relay speaks; it would omit the rest (contract 05 §12). */
const MAX_TEXT = 5000;
const BYTES_PER_SAMPLE = 2;

/** `svc voice say`: speech from the voice output of the relay, to a file or a player. */
export function define(command: Command): void {
  command
    .option('--out <file>', 'write a WAV file (16-bit mono)')
    .option('--play', 'play it, with aplay, paplay, ffplay or sox; the default without --out')
    .option('--profile <name>', "use the voice settings of one of the agent's profiles")
    .option(
      '--provider <id>',
      'another provider than in the settings: local, openai_tts, elevenlabs_tts, xai_tts, stub',
    )
    .option('--model <id>', 'another model')
    .option('--voice <id>', 'another voice')
    .option('--rate <hertz>', 'another sample rate')
    .option('--language <code>', 'another language')
    .option('--speed <factor>', 'how fast it is spoken, 0.25 to 4; 1 is normal')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} say "Dinner is ready"`)
    .example((name) => `${name} say "Dinner is ready" --out dinner.wav --voice nova`)
    .example((name) => `git log -1 --format=%s | ${name} say - --play`)
    .example((name) => `${name} say "A test tone" --provider stub --out tone.wav   # needs no key`)
    .action(run);
}

async function run(given: string, options: Options, context: CommandContext): Promise<void> {
  const out = option(options, '--out', asText);
  const request: SpeechRequest = {
    text: await textOf(given, context),
    profile: profileOption(options),
    provider: option(options, '--provider', asText),
    model: option(options, '--model', asText),
    voice: option(options, '--voice', asText),
    sample_rate: option(options, '--rate', asRate),
    language: option(options, '--language', asText),
    speed: option(options, '--speed', asSpeed),
  };
  const player = flag(options, '--play') || out === undefined ? await findPlayer(context.env) : undefined;
  if (out !== undefined) await checkOut(out);
  const speech = await withVoiceRelay(options, context, ['voice:tts'], (relay) =>
    render(relay, request, { out, player, context, isQuiet: flag(options, '--json') }),
  );
  report(speech, out, player, options, context);
}

interface Target {
  out?: string;
  player?: Player;
  context: CommandContext;
  isQuiet: boolean;
}

async function render(relay: VoiceRelay, request: SpeechRequest, { out, player, context, isQuiet }: Target) {
  const progress = createProgress(context, isQuiet);
  const parts: Buffer[] = [];
  let bytes = 0;
  const stop = () => player?.stop();
  relay.signal.addEventListener('abort', stop, { once: true });
  try {
    progress.step('Waiting for the first audio.');
    const speech = await speak(relay, request, ({ pcm, sampleRate }) => {
      bytes += pcm.length;
      player?.play({ pcm, sampleRate });
      if (out !== undefined) parts.push(pcm);
      progress.update(`Received ${seconds(bytes, sampleRate)} of speech.`);
    });
    if (out !== undefined) await writeOut(out, parts, speech.sampleRate);
    if (player) {
      progress.step(`Playing ${seconds(bytes, speech.sampleRate)} of speech with ${player.name}.`);
      await keepAlive(player.finish());
    }
    return speech;
  } catch (error) {
    player?.stop();
    throw error;
  } finally {
    relay.signal.removeEventListener('abort', stop);
    progress.end();
  }
}

function report(
  speech: Speech,
  out: string | undefined,
  player: Player | undefined,
  options: Options,
  context: CommandContext,
): void {
  const { provider, model, voice, sampleRate, bytes, firstAudioMs, totalMs, resumed, eventLog } = speech;
  if (flag(options, '--json')) {
    printJson(context.stdout, {
      file: out === undefined ? null : resolve(out),
      player: player?.name ?? null,
      provider,
      model,
      voice,
      sample_rate: sampleRate,
      seconds: bytes / BYTES_PER_SAMPLE / sampleRate,
      first_audio_ms: firstAudioMs,
      total_ms: totalMs,
      resumed,
      event_log_path: eventLog,
    });
    return;
  }
  const what = out === undefined ? 'Played' : `Wrote ${printable(out)}:`;
  const facts = `${provider}, model ${model}, voice ${voice}, ${sampleRate} Hz`;
  line(context.stdout, `${what} ${seconds(bytes, sampleRate)} of speech (${facts}).`);
  line(context.stdout, `First audio after ${firstAudioMs} ms, all of it after ${totalMs} ms.`);
  if (resumed) line(context.stderr, 'The connection was lost once, and taken up again.');
}

const seconds = (bytes: number, sampleRate: number): string =>
  `${(bytes / BYTES_PER_SAMPLE / sampleRate).toFixed(1)} s`;

async function textOf(given: string, context: CommandContext): Promise<string> {
  const text = (
    given === '-' ? await readAll(context, 'the text', `stdin is longer than ${MAX_TEXT} characters`) : given
  ).trim();
  if (text === '') throw new UsageError('the text is empty');
  const length = [...text].length;
  if (length > MAX_TEXT) throw new UsageError(`the text has ${length} characters: at most ${MAX_TEXT} are spoken`);
  return text;
}
