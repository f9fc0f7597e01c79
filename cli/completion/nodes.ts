import { type Command, cac } from 'cac';
import { actionsOf, type CommandEntry, nameOf, nestedPrograms, programs } from '../commands.ts';
import { COMMON } from '../help.ts';
import { knownOptions } from '../options.ts';
import { argumentValues, optionValues, type Values } from './values.ts';

/** One completion and its description. */
export interface Word {
  word: string;
  summary: string;
}

/** An option; `values` complete its value, and are undefined when it takes none. */
export type OptionWord = Word & { values: Values | undefined };

/** Completions of a partial command line. */
export interface CompletionNode {
  /** The words so far, such as `svc/relay/start`. */
  path: string;
  /** Commands, or the actions of a command. */
  words: Word[];
  /** Options, each under every way to write it. */
  options: OptionWord[];
  /** Completes the first argument, when that is not one of `words`. */
  argument: Values | undefined;
}

/** Every beginning of a command line of `svc` and `svc-relay`, from what the commands declare. Loads every command. */
export async function completionNodes(): Promise<CompletionNode[]> {
  const nested = Object.entries(nestedPrograms);
  const words = nested.map(([word, { summary }]) => ({ word, summary }));
  const nodes = await Promise.all([
    programNodes('svc', programs.svc.commands, words),
    ...nested.map(([word, { commands }]) => programNodes(`svc/${word}`, commands)),
    programNodes('svc-relay', programs['svc-relay'].commands),
    // `svc help relay start`; the programs inside svc take `help` too.
    ...nested.map(([word, { commands }]) => [helpNode(`svc/help/${word}`, commandWords(commands))]),
  ]);
  return nodes.flat();
}

const HELP: Word = { word: 'help', summary: 'show the help of a command' };

const commandWords = (commands: CommandEntry[]): Word[] =>
  commands.map((entry) => ({ word: nameOf(entry), summary: entry.summary }));

const helpNode = (path: string, words: Word[]): CompletionNode => ({
  path,
  words,
  options: optionsOf(path, cac().command('')),
  argument: undefined,
});

async function programNodes(path: string, commands: CommandEntry[], nested: Word[] = []): Promise<CompletionNode[]> {
  const words = [...commandWords(commands), ...nested];
  const below = await Promise.all(commands.map((entry) => commandNodes(path, entry)));
  return [helpNode(path, [...words, HELP]), helpNode(`${path}/help`, words), ...below.flat()];
}

/** A command under each of its names, and below it its actions that take a value. */
async function commandNodes(parent: string, entry: CommandEntry): Promise<CompletionNode[]> {
  const command = cac().command(entry.usage, entry.summary);
  (await entry.load()).define(command);
  const expectsFile = command.args.some(({ value }) => value === 'file');
  return [command.name, ...(entry.alias === undefined ? [] : [entry.alias])].flatMap((name) => {
    const path = `${parent}/${name}`;
    const words = actionsOf(entry).map((word) => ({ word, summary: '' }));
    const options = optionsOf(path, command);
    const actions = words.flatMap(({ word }) => {
      const argument = argumentValues(`${path}/${word}`);
      return argument === undefined ? [] : [{ path: `${path}/${word}`, words: [], options, argument }];
    });
    return [{ path, words, options, argument: expectsFile ? '@files' : argumentValues(path) }, ...actions];
  });
}

/** The options of a command, and those of every command. */
function optionsOf(path: string, command: Command): OptionWord[] {
  for (const [rawName, description] of COMMON) command.option(rawName, description);
  return [...knownOptions(command)].map(([flag, option]) => {
    const word = flag.length === 1 ? `-${flag}` : `--${flag}`;
    return { word, summary: option.description, values: optionValues(path, word, option) };
  });
}
