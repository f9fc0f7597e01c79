import { type Command, cac } from 'cac';
import { actionsOf, type CommandEntry, nestedPrograms, programs } from './commands.ts';
import { COMMON } from './help.ts';

type Row = readonly [left: string, right: string];

/** Text as roff prints it: no line of it is a request, and hyphens of options can be copied. */
function text(plain: string): string {
  const escaped = plain.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('\n', ' ');
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}

/** A word of a request, such as a heading. */
const word = (plain: string): string => `"${text(plain).replaceAll('"', '\\(dq')}"`;

const listed = (rows: readonly Row[]): string[] =>
  rows.flatMap(([left, right]) => ['.TP', `.B ${word(left)}`, text(right === '' ? left : right)]);

const sentence = (summary: string): string => `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`;

async function commandLines(program: string, entry: CommandEntry): Promise<string[]> {
  const command: Command = cac(program).command(entry.usage, entry.summary);
  (await entry.load()).define(command);
  const options = command.options.map(({ rawName, description }): Row => [rawName, description]);
  const examples = command.examples.map((example) => (typeof example === 'string' ? example : example(program)));
  const actions = actionsOf(entry);
  return [
    `.SS ${word(`${program} ${entry.usage}`)}`,
    text(sentence(entry.summary)),
    ...(actions.length > 0 ? ['.PP', text(`Actions: ${actions.join(', ')}.`)] : []),
    ...listed(options),
    ...(examples.length === 0
      ? []
      : ['.PP', 'Examples:', '.PP', '.nf', ...examples.map((line) => text(`  ${line}`)), '.fi']),
  ];
}

/** The manual page svc(1), in the macros of man(7): every command with its options, from the tables of `commands.ts`. */
export async function manPage(version: string): Promise<string> {
  const all: [program: string, commands: CommandEntry[]][] = [
    ['svc', programs.svc.commands],
    ...Object.entries(nestedPrograms).map(([name, { commands }]): [string, CommandEntry[]] => [
      `svc ${name}`,
      commands,
    ]),
  ];
  const sections = await Promise.all(
    all.map(([program, commands]) => Promise.all(commands.map((entry) => commandLines(program, entry)))),
  );
  const lines = [
    `.TH SVC 1 "" ${word(`svc-relay ${version}`)} "User Commands"`,
    '.SH NAME',
    text(`svc - ${programs.svc.summary}`),
    '.SH SYNOPSIS',
    '.B svc',
    text('<command> [options]'),
    '.SH DESCRIPTION',
    text("The relay between a person's phone and the agent on their home machine."),
    text('svc relay <command> and svc-relay <command> are the same.'),
    '.SH OPTIONS',
    text('Every command takes:'),
    ...listed(COMMON),
    '.SH COMMANDS',
    ...sections.flat(2),
    '.SH EXIT STATUS',
    ...listed([
      ['0', 'success'],
      ['1', 'failure; with --json, a document {"ok":false,"error":...,"next":...}'],
      ['2', 'wrong usage'],
    ]),
    '.SH FILES',
    ...listed([
      ['~/.svc/.env', 'variables of the relay and its commands; SVC_HOME names another agent home'],
      ['~/.svc/svc-relay/', 'the state of the relay'],
    ]),
  ];
  return `${lines.join('\n')}\n`;
}
