import type { CAC, Command } from 'cac';
import { hangingIndent } from './output.ts';

type Row = [string, string];

export const COMMON: Row[] = [
  ['-h, --help', 'show this help'],
  ['-v, --version', 'show the version'],
];

/** Columns that a text beside its name needs at least; with fewer it stands below. */
const MIN_BESIDE = 24;

const table = (rows: Row[], width: number, columns: number | undefined) =>
  rows.flatMap(([left, right]) => {
    if (columns !== undefined && columns - width - 4 < MIN_BESIDE) {
      return [`  ${left}`, ...hangingIndent(right, { indent: 6, columns })];
    }
    const [first = '', ...more] = hangingIndent(right, { indent: width + 4, columns });
    return [`  ${left.padEnd(width)}  ${first.trimStart()}`.trimEnd(), ...more];
  });

const section = (title: string, lines: string[]) => (lines.length === 0 ? [] : [`${title}:`, ...lines, '']);

const usage = (text: string, columns: number | undefined) =>
  hangingIndent(text, { indent: 6, columns }).map((row, at) => (at === 0 ? row.slice(4) : row));

const widest = (rows: Row[]) => Math.max(...rows.map(([left]) => left.length));

/**
 * Help for a program: its commands, and `nested` programs below them; wrapped at `columns`, on a terminal. `named` names
 * commands as the user has to call them.
 */
export function programHelp(
  program: CAC,
  named: (text: string) => string,
  examples: string[],
  nested: Row[],
  columns?: number,
): string {
  const rows: Row[] = program.commands.map((command) => [command.rawName, named(command.description)]);
  const all = [...rows, ...nested];
  const width = widest([...all, ...COMMON]);
  return [
    ...section('Usage', usage(named(`${program.name} <command> [options]`), columns)),
    ...section('Commands', table(all, width, columns)),
    ...section('Options', table(COMMON, width, columns)),
    ...section('Examples', folded(examples.map(named), columns)),
    ...hangingIndent(named(`Run '${program.name} <command> --help' for the options of a command.`), {
      indent: 0,
      columns,
    }),
    '',
  ].join('\n');
}

/** Help for one command: arguments, options, examples; likewise. */
export function commandHelp(program: CAC, command: Command, named: (text: string) => string, columns?: number): string {
  const options: Row[] = [
    ...command.options.map(({ rawName, description }): Row => [rawName, named(description)]),
    ...COMMON,
  ];
  const width = widest(options);
  const examples = command.examples.map((example) => (typeof example === 'string' ? example : example(program.name)));
  return [
    ...hangingIndent(named(command.description.charAt(0).toUpperCase() + command.description.slice(1)), {
      indent: 0,
      columns,
    }),
    '',
    ...section('Usage', usage(named(`${program.name} ${command.rawName} [options]`), columns)),
    ...section('Aliases', command.aliasNames.length === 0 ? [] : [`  ${command.aliasNames.join(', ')}`]),
    ...section('Options', table(options, width, columns)),
    ...section('Examples', folded(examples.map(named), columns)),
  ].join('\n');
}

/** Where a long example may go on in the next line: before an option, a setting, a pipe, or the program after its variables. */
const FOLD = /(?<!npx) (?=--[a-z]|[A-Z_]+=|\| |(?:npx )?svc(?:-relay)? )/;

/** Examples that can be copied: a long one goes on in the next line, its comment stands below. */
function folded(examples: string[], columns = Number.POSITIVE_INFINITY): string[] {
  return examples.flatMap((example) => {
    if (example.length + 2 <= columns) return example === '' ? '' : `  ${example}`;
    if (example.startsWith('# ')) {
      return hangingIndent(example.slice(2), { indent: 4, columns }).map((row) => `  # ${row.slice(4)}`);
    }
    const [command = '', ...comment] = example.split(/\s+#\s/);
    const rows: string[] = [];
    for (const part of command.split(FOLD)) {
      const last = rows.at(-1);
      const isRoom = last !== undefined && last.length + 1 + part.length + 2 <= columns;
      if (isRoom) rows[rows.length - 1] = `${last} ${part}`;
      else rows.push(last === undefined ? `  ${part}` : `      ${part}`);
    }
    const lines = rows.map((row, at) => (at < rows.length - 1 ? `${row} \\` : row));
    return [
      ...lines,
      ...hangingIndent(comment.length > 0 ? `# ${comment.join(' # ')}` : '', { indent: 6, columns }),
    ].filter((row) => row.trim() !== '');
  });
}
