import type { HostFiles } from '../../host/index.ts';
import { createByteBuffer } from '../../kit/byte-buffer.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { type CommandHost, filled, mentions, runCommand } from '../command.ts';
import { providerFailure } from './call.ts';
import type { Clip } from './clips.ts';

/** Maximum bytes of a transcript. More output ends the command. */
const MAX_OUTPUT = 1024 * 1024;

/** A quoted stretch, an escaped character, or plain ones. */
const WORD_PIECE = /'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])|([^\s'"\\]+)|(\s+)|(["'\\])/g;

/**
 * Splits a template into a program and its arguments with the quotes and backslashes of a shell, and nothing else.
 * @throws RelayError for an unclosed quote, and an empty template.
 */
export function wordsOf(template: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  for (const [, single, double, escaped, plain, space, stray] of template.trim().matchAll(WORD_PIECE)) {
    if (stray !== undefined) throw providerFailure('SVC_LOCAL_STT_COMMAND has a quote that is not closed');
    if (space !== undefined) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else {
      word = `${word ?? ''}${single ?? double?.replace(/\\(["\\$`])/g, '$1') ?? escaped ?? plain ?? ''}`;
    }
  }
  if (word !== undefined) words.push(word);
  if (words.length === 0) throw providerFailure('SVC_LOCAL_STT_COMMAND is empty');
  return words;
}

export interface LocalTranscription {
  /** A program and its arguments, with placeholders. */
  command: readonly string[];
  /** Where the command is configured, for errors. */
  name: string;
  clip: Pick<Clip, 'read'>;
  files: NonNullable<Clip['files']>;
  language: string;
  model: string;
  signal: AbortSignal;
}

/**
 * Transcribes with a program of this host (contract 05 §8, §18): the clip is the file `{input_path}`, else stdin. The
 * transcript is the file `{output_path}`, else the first `.txt` in the directory of the clip, else standard output. If
 * aborted, its whole process group is killed before this rejects.
 */
export async function runLocalCommand(
  host: CommandHost,
  { command, name, clip, files: { path, directory }, language, model, signal }: LocalTranscription,
): Promise<string> {
  const output = `${directory}/transcript`;
  const values = { input_path: path, output_dir: directory, output_path: output, language, model };
  const stdout = createByteBuffer(MAX_OUTPUT);
  const run = {
    command: filled(command, values),
    directory,
    stdin: mentions(command, 'input_path') ? undefined : clip.read(),
    name,
    signal,
  };
  for await (const bytes of runCommand(host, run)) {
    if (!stdout.push(bytes)) throw providerFailure(`${name} printed more than 1 MiB`);
  }
  const written = mentions(command, 'output_path') ? await host.files.readText(output, MAX_OUTPUT) : null;
  return (written ?? (await firstTranscript(host.files, directory)) ?? decodeUtf8(stdout.bytes())).trim();
}

async function firstTranscript(files: HostFiles, directory: string): Promise<string | null> {
  const entries = (await files.list(directory)) ?? [];
  const names = entries.filter(({ name, kind }) => kind === 'file' && name.endsWith('.txt')).map(({ name }) => name);
  const [first] = names.sort();
  return first === undefined ? null : files.readText(`${directory}/${first}`, MAX_OUTPUT);
}
