import { RelayError } from '../errors.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { type CommandHost, createRunDirectory, filled, mentions, runCommand } from './command.ts';
import { PROGRAM_MODEL, PROGRAM_VOICE } from './servers.ts';

/** Bytes of audio of one text, as in `streaming/pcm.ts`: more than ten minutes of speech. */
const MAX_AUDIO = 64 * 1024 * 1024;
/** The usual speed of espeak-ng. */
const WORDS_PER_MINUTE = 175;
const SLICE = 64 * 1024;

/** A text for a program that speaks. */
export interface CommandSpeech {
  /** The program and its arguments, with placeholders. */
  command: readonly string[];
  text: string;
  voice: string;
  language: string;
  model: string;
  /** Relative; 1 is the normal one. */
  speed: number;
}

/** Names from a client that may be used in a command line: neither a path nor an option. */
const NAME = /^[\p{L}\p{N}](?:[\p{L}\p{N} _+@()-]|\.(?!\.))*$/u;

/** @throws RelayError `invalid` for a client's voice, model or language that might be a path or an option. */
export function checkName(value: string, what: string): void {
  if (!NAME.test(value)) throw new RelayError('invalid', `this ${what} cannot be given to a program`);
}

/**
 * Speaks with a program of this host (contract 05 §18) and yields what it sends: WAV, MP3 or raw samples. The text is
 * `{text}`, or the file `{input_path}`, else stdin; the audio is the file `{output_path}`, else standard output. Also filled
 * in are `{voice}`, `{language}`, `{model}`, `{speed}`, `{words_per_minute}` and `{length_scale}`. Ends after the program.
 * @throws RelayError `bad-gateway` when the program fails or sends too much, the reason of the signal once it aborts.
 */
export async function* speakByCommand(
  host: CommandHost,
  { command, text, voice, language, model, speed }: CommandSpeech,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  const directory = await createRunDirectory(host);
  try {
    const input = `${directory}/text.txt`;
    const output = `${directory}/speech.wav`;
    const values = {
      text,
      input_path: input,
      output_path: output,
      voice: voice === PROGRAM_VOICE ? '' : voice,
      language,
      model: model === PROGRAM_MODEL ? '' : model,
      speed: String(speed),
      words_per_minute: String(Math.round(WORDS_PER_MINUTE * speed)),
      length_scale: (1 / speed).toFixed(2),
    };
    const content = utf8ToBytes(`${text}\n`);
    const inFile = mentions(command, 'input_path');
    if (inFile) await host.files.createExclusive(input, content, 0o600);
    const stdin = inFile || mentions(command, 'text') ? undefined : content;
    const name = 'tts.local.command';
    const toFile = mentions(command, 'output_path');
    let size = 0;
    const counted = (bytes: Uint8Array): Uint8Array => {
      size += bytes.length;
      if (size > MAX_AUDIO)
        throw new RelayError('bad-gateway', `${name} sent more than ${MAX_AUDIO / 1024 / 1024} MiB`);
      return bytes;
    };
    const run = { command: filled(command, values), directory, stdin, name, signal };
    // The output of a program that writes a file is not audio.
    for await (const bytes of runCommand(host, run)) if (!toFile) yield counted(bytes);
    if (!toFile) return;
    const written = await host.files.read(output, MAX_AUDIO + 1);
    if (!written) throw new RelayError('bad-gateway', `${name} wrote no file`);
    counted(written);
    for (let at = 0; at < written.length; at += SLICE) yield written.subarray(at, at + SLICE);
  } finally {
    await host.files.removeAll(directory).catch(() => {});
  }
}
