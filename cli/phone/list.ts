import type { Command } from 'cac';
import { objects } from '../devices/rows.ts';
import { cutLine } from '../devices/table.ts';
import { openOperatorRelay } from '../operator-relay.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, columns, createStyle, printable, printJson, quote, sentence } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';

const MAX_TEXT = 60;
const MAX_LABEL = 24;
/** Columns that the text of a message needs beside the other cells. */
const MIN_TEXT = 24;

/** `svc phone list`: shows the messages queued for a phone. */
export function define(command: Command): void {
  command
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} list`)
    .example((name) => `${name} list --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const answer = await (await openOperatorRelay(options, context)).call({ method: 'GET', path: '/phone/outbound' });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  const messages = objects(answer.messages);
  if (messages.length === 0) return sentence(context.stdout, 'Nothing waits for a phone.');
  const now = Date.now();
  const rows = messages.map((row) => [
    cell(row.message_id, Number.POSITIVE_INFINITY),
    typeof row.sent_at === 'number' ? age(now - row.sent_at) : '-',
    cell(row.chat_id, MAX_LABEL),
    cell(row.text, MAX_TEXT),
  ]);
  printMessages([['ID', 'WAITS', 'CHAT', 'TEXT'], ...rows], context);
  sentence(
    context.stdout,
    `A phone receives them in this order when it connects. Cancel one with: ${context.program} cancel <id>`,
  );
}

/**
 * A table of messages, whose last column is their text. On a terminal the text is cut to its width, and is put below the
 * other cells if little room is left beside them.
 */
export function printMessages(rows: string[][], { stdout, env }: CommandContext): void {
  const { bold } = createStyle(stdout, env);
  const room = (stdout.isTTY && stdout.columns) || Number.POSITIVE_INFINITY;
  const lines = columns(rows, '');
  const start = lines[0]?.lastIndexOf(rows[0]?.at(-1) ?? '') ?? 0;
  lines.forEach((text, at) => {
    const paint = at === 0 ? bold : (shown: string) => shown;
    const isBeside = room - start >= MIN_TEXT;
    const shown = isBeside ? [text] : [text.slice(0, start).trimEnd(), `  ${rows[at]?.at(-1)}`];
    for (const row of shown) quote(stdout, paint(cutLine(row, room)));
  });
}

export function cell(value: unknown, limit: number): string {
  const text = typeof value === 'string' ? printable(value) : '-';
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

export function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}
