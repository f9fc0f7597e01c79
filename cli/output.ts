import { RelayError } from '../lib/errors.ts';
import type { Host } from '../lib/host/index.ts';
import { MIN_DESCRIPTORS } from '../lib/host/machine.ts';
import { isObject } from '../lib/kit/json.ts';
import { isPrintable, visible, visibleJson } from '../lib/kit/text.ts';
import type { createSimulatedPhone } from './companion/phone.ts';
import type { OwnPackage } from './own-package.ts';

/** Where a command writes, such as `process.stdout`. */
export interface Writer {
  write(text: string): unknown;
  isTTY?: boolean;
  columns?: number;
  rows?: number;
  /** Names the commands in a text of this program as the user has to call them. */
  asInvoked?(text: string): string;
  /** Members of the next JSON document, beside its own. Each is given once. */
  takeExtra?(): object | undefined;
  /** `error`: the reader went away. `resize`: the terminal has another size. */
  on?(event: 'error' | 'resize', listener: () => void): unknown;
  off?(event: 'error' | 'resize', listener: () => void): unknown;
}

/** Where a command reads what people or scripts type, such as `process.stdin`. */
export interface Input {
  isTTY?: boolean;
  setRawMode?(raw: boolean): unknown;
  on(event: 'data' | 'end', listener: (data: Buffer | string) => void): unknown;
  off(event: 'data' | 'end', listener: (data: Buffer | string) => void): unknown;
  resume(): unknown;
  pause(): unknown;
}

/** Everything that a command gets besides its options. Tests supply their own. */
export interface CommandContext {
  stdin: Input;
  stdout: Writer;
  stderr: Writer;
  /** Environment of the process, before `<agent_home>/.env`. */
  env: Record<string, string | undefined>;
  /** As typed, for messages: `svc`, `svc relay` or `svc-relay`. */
  program: string;
  /** Stops a long-running command, as SIGINT and SIGTERM do. */
  stop?: AbortSignal;
  /** True if only `npx svc` finds this program. */
  isRunByNpm?: boolean;
  /** The package this program belongs to. */
  ownPackage: OwnPackage;
  /** Access to this machine. */
  createHost(agentHome: string): Host | Promise<Host>;
  /** The phone of `svc companion run`, where it is not the simulated one. */
  createPhone?: typeof createSimulatedPhone;
}

/** The command line is wrong: exit 2. The message is one line; `main` adds how to get help. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command failed: exit 1. `next` tells the user what to do about it. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly next?: string;

  constructor(message: string, next?: string) {
    super(message);
    this.next = next;
  }
}

export const RAISE_LIMIT = 'Raise the limit, with `ulimit -Hn 1024` or LimitNOFILE= of a systemd unit, and try again.';

const MAKE_ROOM = 'Make room on that disk, and try again. See the disks with: df -h';

/** An error of a command, with the next step where Node's own message lacks it. */
export function withNextStep(error: unknown): unknown {
  const { code = '', path, syscall } = (error ?? {}) as NodeJS.ErrnoException;
  if (['EMFILE', 'ENFILE'].includes(code)) {
    return new CommandError(`too many open files: this command needs ${MIN_DESCRIPTORS} descriptors`, RAISE_LIMIT);
  }
  if (['ENOSPC', 'EDQUOT'].includes(code)) {
    return new CommandError(`no space is left${path === undefined ? '' : ` for ${printable(path)}`}`, MAKE_ROOM);
  }
  // Only what was to be written: a command explains by itself what it cannot read.
  if (path !== undefined && (syscall === 'mkdir' || code === 'EROFS')) {
    return new CommandError(
      `${printable(path)} cannot be written: ${code}`,
      'Make it a folder that this user may write to, or set SVC_HOME to another one.',
    );
  }
  return error;
}

/** 2 for a wrong flag or variable, 1 for everything else. */
export const exitCodeOf = (error: unknown): number =>
  error instanceof UsageError || (error instanceof RelayError && error.kind === 'invalid') ? 2 : 1;

// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape sequences of `createStyle`
const COLOURS = /\u001b\[\d+m/g;

/** Invisible characters that a line of output may contain: line ends, tabs, and the colours of `createStyle`. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters
const LAYOUT = /([\t\n]|\u001b\[\d+m)/;

/** Foreign text (a reply, a file) made safe for a terminal: one line of visible characters (contract 01 §3.3). */
export const printable = (text: string): string => visible(text.replace(/\s+/g, ' ')).trim();

/** A member of a foreign answer, likewise; '' unless it is text. */
export const printableText = (value: unknown): string => (typeof value === 'string' ? printable(value) : '');

/** Likewise the members of a list that have text; none unless it is one. */
export const printableTexts = (value: unknown): string[] =>
  Array.isArray(value) ? value.map(printableText).filter(Boolean) : [];

/** The same for text of several lines: its line ends and tabs stay. */
export const printableLines = (text: string): string => visibleBetween(text, /([\t\n])/);

/** A text of ours without the invisible characters that foreign parts of it may have brought along. */
export const clean = (text: string): string => visibleBetween(text, LAYOUT);

/** `visible`, except for what `allowed` matches, in a group. */
const visibleBetween = (text: string, allowed: RegExp): string =>
  isPrintable(text)
    ? text
    : text
        .split(allowed)
        .map((part, at) => (at % 2 === 0 ? visible(part) : part))
        .join('');

/**
 * Prints a line of ours. On a terminal, a long one breaks between words and goes on below its own indent. Every line of a
 * command comes through here, `quote` or `printJson`.
 */
export function line(writer: Writer, text = ''): void {
  const named = asInvoked(writer, text);
  for (const row of belowIndent(named, writer.isTTY ? writer.columns : undefined)) quote(writer, row);
}

function belowIndent(text: string, columns = Number.POSITIVE_INFINITY): string[] {
  if (visibleWidth(text) <= columns) return [text];
  const start = text.length - text.trimStart().length;
  const indent = start === 0 ? 0 : start + 2;
  const [first = '', ...more] = hangingIndent(text.trimStart(), { indent, columns });
  return [first.slice(indent - start), ...more];
}

/** Prints a line that others wrote, such as a reply, unchanged but for invisible characters. */
export function quote(writer: Writer, text: string): void {
  writer.write(`${clean(text)}\n`);
}

/** A text of ours that names commands as the user has to call them. */
export const asInvoked = (writer: Writer, text: string): string => writer.asInvoked?.(text) ?? text;

/** Prints a sentence, which on a terminal breaks between words. */
export function sentence(writer: Writer, text: string): void {
  for (const row of wrapped(writer, text)) quote(writer, row);
}

/** The rows of a text of ours: on a terminal it breaks between words, each row indented by `indent` spaces. */
export const wrapped = (writer: Writer, text: string, indent = 0): string[] =>
  hangingIndent(asInvoked(writer, text), { indent, columns: writer.isTTY ? writer.columns : undefined });

/** Prints a value as JSON: on one line, or indented. Its `next` names commands as the user has to call them. */
export function printJson(writer: Writer, value: unknown, indent?: number): void {
  const named = (key: string, part: unknown) =>
    key === 'next' && typeof part === 'string' ? asInvoked(writer, part) : part;
  const extra = isObject(value) ? writer.takeExtra?.() : undefined;
  writer.write(`${visibleJson(JSON.stringify(extra ? { ...(value as object), ...extra } : value, named, indent))}\n`);
}

export type Style = ReturnType<typeof createStyle>;

/** Functions that colour text. Without a terminal, or with `NO_COLOR`, they return it unchanged. */
export function createStyle(writer: Writer, env: Record<string, string | undefined>) {
  const enabled = writer.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
  const paint = (open: number, close: number) => (text: string) =>
    enabled ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return { bold: paint(1, 22), dim: paint(2, 22), red: paint(31, 39), yellow: paint(33, 39), green: paint(32, 39) };
}

/** `error: message` on stderr. */
export function printError(context: CommandContext, message: string): void {
  sentence(context.stderr, `${createStyle(context.stderr, context.env).red('error:')} ${message}`);
}

/** `warning: message` on stderr. */
export function printWarning(context: CommandContext, message: string): void {
  sentence(context.stderr, `${createStyle(context.stderr, context.env).yellow('warning:')} ${message}`);
}

/**
 * Wraps a text between words into lines of at most `columns` characters, each indented by `indent` spaces. A longer word
 * stays whole. Without `columns`, or with too few to read, the text stays one line.
 */
export function hangingIndent(text: string, { indent, columns }: { indent: number; columns?: number }): string[] {
  const room = (columns ?? Number.POSITIVE_INFINITY) - indent;
  const lines: string[] = [];
  let current = '';
  for (const word of room < 20 ? [text] : wordsOf(text)) {
    if (current !== '' && visibleWidth(current) + 1 + visibleWidth(word) > room) {
      lines.push(current);
      current = word;
    } else current += current === '' ? word : ` ${word}`;
  }
  return [...lines, current].map((row) => ' '.repeat(indent) + row);
}

/** A command stays with the `npx svc` in front of it. */
function wordsOf(text: string): string[] {
  const words: string[] = [];
  for (const word of text.split(' ')) {
    const last = words.at(-1);
    if (last !== undefined && PROGRAM.test(last)) words[words.length - 1] = `${last} ${word}`;
    else words.push(word);
  }
  return words;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape sequences of `createStyle`
const PROGRAM = /^(?:['"`(]|\u001b\[\d+m)*(?:npx|(?:npx )?svc(?:-relay)?)$/;

/** Rows of a label and its value, with the values aligned and, with `columns`, wrapped between words. */
export function aligned(rows: [label: string, value: string][], indent = '  ', columns?: number): string[] {
  const width = Math.max(0, ...rows.map(([label]) => label.length));
  return rows.flatMap(([label, value]) => {
    const start = `${indent}${label.padEnd(width)}  `;
    const [first = '', ...more] = hangingIndent(value, { indent: start.length, columns });
    return [(start + first.slice(start.length)).trimEnd(), ...more];
  });
}

/** Prints such rows. On a terminal, their values are wrapped at its width. */
export function printAligned(writer: Writer, rows: [label: string, value: string][]): void {
  for (const text of aligned(rows, '  ', writer.isTTY ? writer.columns : undefined)) line(writer, text);
}

/** Characters of a text without its colours. */
export const visibleWidth = (text: string): number => text.replace(COLOURS, '').length;

/** Rows of cells, each column as wide as its widest cell, not counting colours. The last column is not padded. */
export function columns(rows: string[][], indent = '  '): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, at) => {
      widths[at] = Math.max(widths[at] ?? 0, visibleWidth(cell));
    });
  }
  return rows.map((row) => {
    const cells = row.map((cell, at) =>
      at === row.length - 1 ? cell : cell + ' '.repeat((widths[at] ?? 0) - visibleWidth(cell)),
    );
    return `${indent}${cells.join('  ')}`.trimEnd();
  });
}

/** `1 device`, `2 devices`. */
export const amount = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;
