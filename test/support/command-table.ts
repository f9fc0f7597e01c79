import { stripVTControlCharacters } from 'node:util';
import {
  actionsOf,
  type CommandEntry,
  nameOf,
  nestedPrograms,
  type ProgramName,
  programs,
} from '../../cli/commands.ts';

/** A command of the table that help is made from, as it is typed. */
export interface TypedCommand {
  program: ProgramName;
  /** Words after the program's name: `['relay', 'doctor']`. */
  words: string[];
  entry: CommandEntry;
}

/** Every command of every program, however often it is in the tables. A new command is among them by itself. */
export const everyCommand: TypedCommand[] = [
  ...Object.entries(programs).flatMap(([program, { commands }]) =>
    commands.map((entry) => ({ program: program as ProgramName, words: [nameOf(entry)], entry })),
  ),
  ...Object.entries(nestedPrograms).flatMap(([word, { commands }]) =>
    commands.map((entry) => ({ program: 'svc' as const, words: [word, nameOf(entry)], entry })),
  ),
];

/** The commands of `svc`, each once with every action of it. */
export const everyAction: TypedCommand[] = everyCommand
  .filter(({ program }) => program === 'svc')
  .flatMap((command) => [
    command,
    ...actionsOf(command.entry).map((action) => ({ ...command, words: [...command.words, action] })),
  ]);

/** Rows of a text that are wider than the terminal, although they could break between words. */
export const misfits = (text: string, columns: number): string[] =>
  text.split('\n').filter((row) => {
    const shown = stripVTControlCharacters(row);
    return shown.length > columns && /\S\s+\S/.test(shown);
  });

const WORDS = ['<command>', '--help', ...Object.keys(nestedPrograms), ...everyCommand.map(({ words }) => words[0])];
const UNCALLED = new RegExp(`(?<!npx |[.\\w-])svc(?:-relay)? (?:${WORDS.join('|')})(?![\\w-])|npx(?: \\\\)?$`);

/** Rows of a text that name a command which a caller with `npx` would not find, or cut `npx` off. */
export const uncalled = (text: string): string[] =>
  stripVTControlCharacters(text)
    .split('\n')
    .filter((row) => UNCALLED.test(row));
