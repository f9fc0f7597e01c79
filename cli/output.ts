import { RelayError } from '../lib/errors.ts';
import type { Host } from '../lib/host/index.ts';
import type { OwnPackage } from './version.ts';

/** Where a command writes; `process.stdout` is one. */
export interface Writer {
  write(text: string): unknown;
  isTTY?: boolean;
  columns?: number;
  /** `error`: whoever read it is gone. */
  on?(event: 'error', listener: () => void): unknown;
  off?(event: 'error', listener: () => void): unknown;
}

/** What people or scripts type; `process.stdin` is one. */
export interface Input {
  isTTY?: boolean;
  setRawMode?(raw: boolean): unknown;
  on(event: 'data' | 'end', listener: (data: Buffer | string) => void): unknown;
  off(event: 'data' | 'end', listener: (data: Buffer | string) => void): unknown;
  resume(): unknown;
  pause(): unknown;
}

/** What a command gets besides its options. Tests put their own in. */
export interface CommandContext {
  stdin: Input;
  stdout: Writer;
  stderr: Writer;
  /** Environment of the process, before `<agent_home>/.env`. */
  env: Record<string, string | undefined>;
  /** As typed, for messages: `svc`, `svc relay` or `svc-relay`. */
  program: string;
  /** Ends a command that runs until it is told to, as SIGINT and SIGTERM do. */
  stop?: AbortSignal;
  /** The package this program belongs to. */
  ownPackage: OwnPackage;
  /** This machine, for the commands that ask it something. */
  createHost(agentHome: string): Host | Promise<Host>;
}

/** The command line is wrong: exit 2. The message is one line; the hint how to get help is added by `main`. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command could not do its work: exit 1. `next` says what to do about it. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly next?: string;

  constructor(message: string, next?: string) {
    super(message);
    this.next = next;
  }
}

/** 2 for what the user wrote wrongly (in a flag or a variable), 1 for all else. */
export const exitCodeOf = (error: unknown): number =>
  error instanceof UsageError || (error instanceof RelayError && error.kind === 'invalid') ? 2 : 1;

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not reach a terminal
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

/** Text of somebody else (a reply, a file) made safe for a terminal: one line without control or direction characters. */
export const printable = (text: string): string => text.replace(/\s+/g, ' ').replace(CONTROL, '').trim();

export function line(writer: Writer, text = ''): void {
  writer.write(`${text}\n`);
}

export type Style = ReturnType<typeof createStyle>;

/** Colours, which are nothing unless `writer` is a terminal and `NO_COLOR` is unset or empty. */
export function createStyle(writer: Writer, env: Record<string, string | undefined>) {
  const enabled = writer.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
  const paint = (open: number, close: number) => (text: string) =>
    enabled ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return { bold: paint(1, 22), dim: paint(2, 22), red: paint(31, 39), yellow: paint(33, 39), green: paint(32, 39) };
}

/** `error: message` on stderr. */
export function printError(context: CommandContext, message: string): void {
  line(context.stderr, `${createStyle(context.stderr, context.env).red('error:')} ${message}`);
}

/** `warning: message` on stderr. */
export function printWarning(context: CommandContext, message: string): void {
  line(context.stderr, `${createStyle(context.stderr, context.env).yellow('warning:')} ${message}`);
}

/**
 * A text as lines that stand `indent` spaces in, broken between words so that none is wider than `columns`; a word that
 * is wider stays whole. One line without `columns`, or where they are too few to read.
 */
export function hung(text: string, { indent, columns }: { indent: number; columns?: number }): string[] {
  const room = (columns ?? Number.POSITIVE_INFINITY) - indent;
  const lines: string[] = [];
  let current = '';
  for (const word of room < 20 ? [text] : text.split(' ')) {
    if (current !== '' && current.length + 1 + word.length > room) {
      lines.push(current);
      current = word;
    } else current += current === '' ? word : ` ${word}`;
  }
  return [...lines, current].map((row) => ' '.repeat(indent) + row);
}

/** Rows of a label and its value, the values under each other. */
export function aligned(rows: [label: string, value: string][], indent = '  '): string[] {
  const width = Math.max(0, ...rows.map(([label]) => label.length));
  return rows.map(([label, value]) => `${indent}${label.padEnd(width)}  ${value}`.trimEnd());
}
