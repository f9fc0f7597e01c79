import { asObject } from '../lib/kit/json.ts';
import { flag, type Options } from './options.ts';
import { type CommandContext, CommandError, createStyle, line, printable, UsageError } from './output.ts';
import { openPhoneRelay } from './phone-relay.ts';

const SHOWN_TEXT = 60;
const SHOWN_LABEL = 24;

/** `svc phone list`. */
export async function list(options: Options, context: CommandContext): Promise<void> {
  const answer = await openPhoneRelay(context).call({ method: 'GET', path: '/phone/outbound' });
  if (flag(options, '--json')) return line(context.stdout, JSON.stringify(answer));
  const messages = Array.isArray(answer.messages) ? answer.messages.map((row) => asObject(row) ?? {}) : [];
  if (messages.length === 0) return line(context.stdout, 'Nothing waits for a phone.');
  const { bold } = createStyle(context.stdout, context.env);
  const now = Date.now();
  const rows = messages.map((row) => [
    shown(row.message_id, Number.POSITIVE_INFINITY),
    typeof row.sent_at === 'number' ? age(now - row.sent_at) : '-',
    shown(row.chat_id, SHOWN_LABEL),
    shown(row.text, SHOWN_TEXT),
  ]);
  const [head = '', ...lines] = columns([['ID', 'WAITS', 'CHAT', 'TEXT'], ...rows]);
  line(context.stdout, bold(head));
  for (const text of lines) line(context.stdout, text);
  line(
    context.stdout,
    `They go out, in this order, when a phone listens. Take one back with: ${context.program} cancel <id>`,
  );
}

/** `svc phone cancel`. */
export async function cancel(id: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const all = flag(options, '--all');
  if ((id === undefined) !== all) {
    throw new UsageError(all ? 'give an id or --all, not both' : 'missing <id>: give the id of a message, or --all');
  }
  const query = id === undefined ? '' : `?message_id=${encodeURIComponent(id)}`;
  const answer = await openPhoneRelay(context).call({ method: 'DELETE', path: `/phone/outbound${query}` });
  const cancelled = typeof answer.cancelled === 'number' ? answer.cancelled : 0;
  if (flag(options, '--json')) line(context.stdout, JSON.stringify({ cancelled }));
  else if (cancelled > 0) line(context.stdout, `Cancelled ${cancelled} message${cancelled === 1 ? '' : 's'}.`);
  else if (all) line(context.stdout, 'Nothing was waiting.');
  if (id !== undefined && cancelled === 0) {
    throw new CommandError(
      `no message '${printable(id)}' waits; what was delivered cannot be taken back`,
      `See what waits with: ${context.program} list`,
    );
  }
}

function shown(value: unknown, limit: number): string {
  const text = typeof value === 'string' ? printable(value) : '-';
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

/** Cells under each other; the last column is as long as it is. */
function columns(rows: string[][]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
