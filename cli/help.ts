import type { CAC, Command } from 'cac';

type Row = [string, string];

const COMMON: Row[] = [
  ['-h, --help', 'show this help'],
  ['-v, --version', 'show the version'],
];

const table = (rows: Row[], width: number) =>
  rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`.trimEnd());

const section = (title: string, lines: string[]) => (lines.length === 0 ? [] : [`${title}:`, ...lines, '']);

const widest = (rows: Row[]) => Math.max(...rows.map(([left]) => left.length));

/** Help for a program: its commands, one line each, and `nested` programs below them. */
export function programHelp(program: CAC, examples: string[], nested: Row[]): string {
  const rows: Row[] = program.commands.map((command) => [command.rawName, command.description]);
  const all = [...rows, ...nested];
  const width = widest([...all, ...COMMON]);
  return [
    ...section('Usage', [`  ${program.name} <command> [options]`]),
    ...section('Commands', table(all, width)),
    ...section('Options', table(COMMON, width)),
    ...section('Examples', indented(examples)),
    `Run '${program.name} <command> --help' for the options of a command.`,
    '',
  ].join('\n');
}

/** Help for one command: arguments, options, examples. */
export function commandHelp(program: CAC, command: Command): string {
  const options: Row[] = [...command.options.map((option): Row => [option.rawName, option.description]), ...COMMON];
  const width = widest(options);
  const examples = command.examples.map((example) => (typeof example === 'string' ? example : example(program.name)));
  return [
    command.description.charAt(0).toUpperCase() + command.description.slice(1),
    '',
    ...section('Usage', [`  ${program.name} ${command.rawName} [options]`]),
    ...section('Aliases', command.aliasNames.length === 0 ? [] : [`  ${command.aliasNames.join(', ')}`]),
    ...section('Options', table(options, width)),
    ...section('Examples', indented(examples)),
  ].join('\n');
}

const indented = (lines: string[]) => lines.map((text) => (text === '' ? '' : `  ${text}`));
