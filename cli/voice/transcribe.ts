import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, extname } from 'node:path';
import type { Command } from 'cac';
import { describeError } from '../../lib/errors.ts';
import { visible } from '../../lib/kit/text.ts';
import { MiB } from '../../lib/kit/units.ts';
import { CLIP_TYPES } from '../../lib/voice/clip-types.ts';
import { formData } from '../../lib/web/form-data.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, CommandError, line, printable, printJson, quote, UsageError } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import { createProgress, type Progress } from './progress.ts';
import { profileOption, withVoiceRelay } from './relay.ts';

/** Contract 05 §6. */
const MAX_SIZE = 25 * MiB;
/** Milliseconds, since a program on the host may take five minutes. */
const TIMEOUT = 330_000;

/** `svc voice transcribe`: the text of a recording. */
export function define(command: Command): void {
  command
    .option('--profile <name>', "use the transcription of one of the agent's profiles")
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} transcribe note.wav`)
    .example((name) => `text=$(${name} transcribe note.m4a --profile work)   # only the text goes to stdout`)
    .example((name) => `${name} transcribe note.ogg --json`)
    .action(run);
}

async function run(path: string, options: Options, context: CommandContext): Promise<void> {
  const profile = profileOption(options);
  const extension = extname(path).slice(1).toLowerCase();
  const contentType = Object.hasOwn(CLIP_TYPES, extension) ? CLIP_TYPES[extension] : undefined;
  if (contentType === undefined) {
    const known = Object.keys(CLIP_TYPES).join(', ');
    throw new UsageError(`'${printable(path)}' has no known extension: use one of ${known}`);
  }
  const size = await sizeOf(path);
  const progress = createProgress(context, flag(options, '--json'));
  const name = printable(basename(path));
  const query = profile === undefined ? '' : `?profile=${encodeURIComponent(profile)}`;
  const began = performance.now();
  const answer = await withVoiceRelay(options, context, ['voice:stt'], async (relay) => {
    try {
      progress.step(`Sending ${name}, ${megabytes(size)} MiB.`);
      const content = read(path, size, progress);
      const form = formData([], { name: 'audio', filename: basename(path), contentType, size, content });
      const call = { method: 'POST', path: `/voice/transcribe${query}`, form, timeout: TIMEOUT } as const;
      return await relay.call(call);
    } finally {
      progress.end();
    }
  });
  const text = typeof answer.text === 'string' ? answer.text : '';
  if (flag(options, '--json')) {
    const { provider = null } = answer;
    const ms = Math.round(performance.now() - began);
    printJson(context.stdout, { text, provider, profile: profile ?? null, bytes: size, total_ms: ms });
    return;
  }
  for (const row of text === '' ? [] : text.split('\n')) quote(context.stdout, visible(row));
  if (text === '') line(context.stderr, 'No speech was recognised.');
}

/** @throws CommandError for a file that the relay would refuse. */
async function sizeOf(path: string): Promise<number> {
  const facts = await stat(path).catch((error) => {
    const isMissing = error.code === 'ENOENT';
    throw new CommandError(
      `${printable(path)} ${isMissing ? 'does not exist' : `cannot be read: ${describeError(error)}`}`,
      'Give the path of a recording.',
    );
  });
  if (!facts.isFile()) throw new CommandError(`${printable(path)} is not a file`, 'Give the path of a recording.');
  if (facts.size === 0) throw new CommandError(`${printable(path)} is empty`, 'Record it again.');
  if (facts.size <= MAX_SIZE) return facts.size;
  throw new CommandError(
    `${printable(path)} has ${megabytes(facts.size)} MiB: at most ${megabytes(MAX_SIZE)} are accepted`,
    'Split it, or convert it, such as with: sox long.wav -r 16000 -c 1 short.flac',
  );
}

/** The file in chunks, on demand. */
async function* read(path: string, size: number, progress: Progress): AsyncGenerator<Uint8Array> {
  let sent = 0;
  try {
    for await (const chunk of createReadStream(path) as AsyncIterable<Uint8Array>) {
      yield chunk;
      sent += chunk.length;
      const percent = Math.min(100, Math.floor((100 * sent) / size));
      progress.update(`Sending ${megabytes(sent)} of ${megabytes(size)} MiB (${percent} %).`);
    }
  } catch (error) {
    throw new CommandError(
      `${printable(path)} cannot be read: ${describeError(error)}`,
      'Give the path of a recording.',
    );
  }
  progress.step('Transcribing.');
}

const megabytes = (bytes: number): string => (bytes / MiB).toFixed(1);
