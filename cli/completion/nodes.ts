import { type Command, cac } from 'cac';
import { type CommandEntry, nestedPrograms, programs } from '../commands.ts';
import { COMMON } from '../help.ts';
import { knownOptions } from '../options.ts';

/** A completion with its description. */
export interface Word {
  word: string;
  summary: string;
}

/** Completions of a partial command line. */
export interface CompletionNode {
  /** The words so far, such as `svc/relay/start`. */
  path: string;
  /** Commands, or the actions of a command. */
  words: Word[];
  /** Options, each under every way to write it. */
  options: (Word & { takesValue: boolean })[];
  /** Whether the argument is a file. */
  takesFile: boolean;
}

/** Every beginning of a command line of `svc` and `svc-relay`, from what the commands declare. Loads every command. */
export async function completionNodes(): Promise<CompletionNode[]> {
  const nested = Object.entries(nestedPrograms);
  const words = nested.map(([word, { summary }]) => ({ word, summary }));
  const nodes = await Promise.all([
    programNodes('svc', programs.svc.commands, words),
    ...nested.map(([word, { commands }]) => programNodes(`svc/${word}`, commands)),
    programNodes('svc-relay', programs['svc-relay'].commands),
  ]);
  return nodes.flat();
}

async function programNodes(path: string, commands: CommandEntry[], nested: Word[] = []): Promise<CompletionNode[]> {
  const words = commands.map(({ usage, summary }) => ({ word: usage.split(' ', 1)[0] as string, summary }));
  const own = { path, words: [...words, ...nested], options: optionsOf(cac().command('')), takesFile: false };
  const below = await Promise.all(commands.map((entry) => commandNodes(path, entry)));
  return [own, ...below.flat()];
}

/** A command under each of its names. */
async function commandNodes(parent: string, entry: CommandEntry): Promise<CompletionNode[]> {
  const command = cac().command(entry.usage, entry.summary);
  (await entry.load()).define(command);
  return [command.name, ...(entry.alias === undefined ? [] : [entry.alias])].map((name) => ({
    path: `${parent}/${name}`,
    words: (entry.actions ?? []).map((word) => ({ word, summary: '' })),
    options: optionsOf(command),
    takesFile: command.args.some(({ value }) => value === 'file'),
  }));
}

/** The options of a command, and those of every command. */
function optionsOf(command: Command): CompletionNode['options'] {
  for (const [rawName, description] of COMMON) command.option(rawName, description);
  return [...knownOptions(command)].map(([flag, { takesValue, description }]) => ({
    word: flag.length === 1 ? `-${flag}` : `--${flag}`,
    summary: description,
    takesValue,
  }));
}
