import type { Child, Exit, Host, HostFiles } from '../../host/index.ts';
import { createByteBuffer } from '../../kit/byte-buffer.ts';
import { mentionsSecret, SECRET_VARIABLES } from '../../kit/secret-names.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { providerFailure } from './call.ts';

/** Bytes of a transcript. More output ends the command. */
const MAX_OUTPUT = 1024 * 1024;

/** Values of a template's placeholders. */
export interface TemplateValues {
  input_path: string;
  output_dir: string;
  language: string;
  model: string;
}

const PLACEHOLDER = /\{(input_path|output_dir|language|model)\}/g;
/** A quoted stretch, an escaped character, or plain ones. */
const WORD_PIECE = /'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])|([^\s'"\\]+)|(\s+)|(["'\\])/g;

/**
 * Splits a template into a program and its arguments as a shell would, without one: quotes and backslashes work, nothing
 * else has a meaning. A value stays within its argument, whatever it contains.
 * @throws RelayError for a quote that is not closed, and an empty template.
 */
export function argumentsOf(template: string, values: TemplateValues): string[] {
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
  return words.map((each) => each.replace(PLACEHOLDER, (_, name: keyof TemplateValues) => values[name]));
}

/** The environment of the command: that of the relay without anything that is named like a secret. */
export function scrubbed(env: Host['env']): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && !mentionsSecret(name) && !/KEY/i.test(name) && !SECRET_VARIABLES.includes(name)) {
      kept[name] = value;
    }
  }
  return kept;
}

/**
 * Transcribes with a program of this host (contract 05 §8): the first `.txt` in its output directory, else its standard
 * output. Aborted, its whole process group is killed before this rejects.
 */
export async function runLocalCommand(
  { children, env, files }: Pick<Host, 'children' | 'env' | 'files'>,
  template: string,
  values: TemplateValues,
  signal: AbortSignal,
): Promise<string> {
  const [program = '', ...args] = argumentsOf(template, values);
  const file = await children.find(program);
  if (file === null) throw providerFailure('the program of SVC_LOCAL_STT_COMMAND was not found');
  signal.throwIfAborted();
  const command = { file, args, env: scrubbed(env), cwd: values.output_dir };
  const child = await children.spawn(command).catch(() => {
    throw providerFailure('the program of SVC_LOCAL_STT_COMMAND cannot be started');
  });
  const { exit, stdout, isCut } = await finished(child, signal);
  signal.throwIfAborted();
  if (isCut) throw providerFailure('the local STT command printed more than 1 MiB');
  if (exit.code !== 0) {
    throw providerFailure(`the local STT command ended with ${exit.signal ?? `exit code ${exit.code}`}`);
  }
  return (await firstTranscript(files, values.output_dir)) ?? decodeUtf8(stdout).trim();
}

interface Finished {
  exit: Exit;
  stdout: Uint8Array;
  isCut: boolean;
}

async function finished(child: Child, signal: AbortSignal): Promise<Finished> {
  const stdout = createByteBuffer(MAX_OUTPUT);
  let isCut = false;
  const kill = () => child.kill('SIGKILL');
  child.onStdout((bytes) => {
    if (stdout.push(bytes) || isCut) return;
    isCut = true;
    kill();
  });
  // Read and dropped, so that the command does not block.
  child.onStderr(() => {});
  child.closeStdin();
  signal.addEventListener('abort', kill);
  if (signal.aborted) kill();
  const exit = await new Promise<Exit>((resolve) => child.onExit(resolve));
  signal.removeEventListener('abort', kill);
  return { exit, stdout: stdout.bytes(), isCut };
}

async function firstTranscript(files: HostFiles, directory: string): Promise<string | null> {
  const entries = (await files.list(directory)) ?? [];
  const names = entries.filter(({ name, kind }) => kind === 'file' && name.endsWith('.txt')).map(({ name }) => name);
  const [first] = names.sort();
  if (first === undefined) return null;
  const text = await files.readText(`${directory}/${first}`, MAX_OUTPUT);
  return text?.trim() ?? null;
}
