import type { Command } from 'cac';
import { asObject } from '../lib/kit/json.ts';
import { confirm } from './confirm.ts';
import { type OperatorRelay, openOperatorRelay } from './operator-relay.ts';
import { actionOf, flag, type Options } from './options.ts';
import {
  type CommandContext,
  CommandError,
  columns,
  createStyle,
  line,
  printable,
  printJson,
  UsageError,
} from './output.ts';
import { RELAY_OPTION } from './remote-relay.ts';

/** Characters of a session's prefix that name it at least (contract 01 §6.4). */
const MIN_PREFIX = 4;
const MAX_NAME = 32;

/** A row of `GET /sessions`, as far as the command reads it. */
interface Row {
  token_prefix: string;
  device_name: string;
  client_surface: string;
  /** Epoch seconds; null for never. */
  last_seen: number;
  expires_at: number | null;
  grants: Record<string, unknown>;
}

/** `svc devices [list|revoke]`: the paired devices of the relay (contract 09 §2). */
export function define(command: Command): void {
  command
    .option('--yes', 'revoke: do not ask')
    .option('--keep-shells', 'revoke: leave the shells of the device in tmux, and what runs in them')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} devices`)
    .example((name) => `${name} devices revoke "Pixel 9"`)
    .example((name) => `${name} devices revoke 3f9c2a10 --keep-shells --yes`)
    .action(run);
}

async function run(
  word: string | undefined,
  device: string | undefined,
  options: Options,
  context: CommandContext,
): Promise<void> {
  const action = actionOf(word, 'list', 'revoke');
  if (action === 'revoke') return revoke(device, options, context);
  if (device !== undefined) throw new UsageError(`unexpected argument '${device}'`);
  for (const name of ['--yes', '--keep-shells'] as const) {
    if (flag(options, name)) throw new UsageError(`${name} belongs to 'revoke'`);
  }
  const relay = await openOperatorRelay(options, context);
  const answer = await relay.call({ method: 'GET', path: '/sessions' });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  list(rowsOf(answer), context);
}

function list(rows: Row[], context: CommandContext): void {
  if (rows.length === 0) {
    line(context.stdout, `No device is paired. Pair one with: ${context.program} pair`);
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  const now = Date.now() / 1000;
  const cells = rows.map((row) => [
    cut(row.device_name),
    row.client_surface,
    row.token_prefix,
    `${duration(now - row.last_seen)} ago`,
    row.expires_at === null ? 'never' : `in ${duration(row.expires_at - now)}`,
    grantsOf(row, now),
  ]);
  const [head = '', ...lines] = columns([['NAME', 'KIND', 'SESSION', 'SEEN', 'ENDS', 'GRANTS'], ...cells], '');
  line(context.stdout, bold(head));
  for (const text of lines) line(context.stdout, text);
}

async function revoke(device: string | undefined, options: Options, context: CommandContext): Promise<void> {
  if (device === undefined) throw new UsageError('missing <device>: give its name, or the prefix of its session');
  const relay = await openOperatorRelay(options, context);
  const row = await find(relay, device, context);
  const name = `${printable(row.device_name)} (${row.client_surface}, session ${row.token_prefix})`;
  const keepsShells = flag(options, '--keep-shells');
  if (!flag(options, '--yes')) {
    const shells = keepsShells ? 'Its shells in tmux go on.' : 'Its shells end, with everything that runs in them.';
    const question = `Revoke ${name}? ${shells}`;
    const isSure = await confirm(context, question, 'revoke asks on a terminal: give --yes to revoke without asking');
    if (!isSure) throw new CommandError('nothing was revoked');
  }
  const query = keepsShells ? '?keep_shells=1' : '';
  const answer = await relay.call({ method: 'DELETE', path: `/sessions/${row.token_prefix}${query}` });
  if (flag(options, '--json')) return printJson(context.stdout, { ...answer, keep_shells: keepsShells });
  line(context.stdout, `Revoked ${name}.`);
}

/** The one device of a name (in any case), or of a session's prefix. */
async function find(relay: OperatorRelay, device: string, context: CommandContext): Promise<Row> {
  const rows = rowsOf(await relay.call({ method: 'GET', path: '/sessions' }));
  const wanted = printable(device).toLowerCase();
  const found = rows.filter(
    (row) =>
      printable(row.device_name).toLowerCase() === wanted ||
      (device.length >= MIN_PREFIX && row.token_prefix.startsWith(device)),
  );
  const [row, second] = found;
  const list = `List them with: ${context.program} devices`;
  if (!row) throw new CommandError(`no paired device has the name or session '${printable(device)}'`, list);
  if (second) {
    const which = found.map((row) => `${row.token_prefix} (${printable(row.device_name)})`).join(', ');
    throw new CommandError(
      `'${printable(device)}' names several devices: ${which}`,
      'Give the session of one of them.',
    );
  }
  return row;
}

function rowsOf({ sessions }: Record<string, unknown>): Row[] {
  const text = (value: unknown) => (typeof value === 'string' ? value : '');
  const number = (value: unknown) => (typeof value === 'number' ? value : null);
  return (Array.isArray(sessions) ? sessions : []).map((value) => {
    const row = asObject(value) ?? {};
    return {
      token_prefix: printable(text(row.token_prefix)),
      device_name: text(row.device_name),
      client_surface: printable(text(row.client_surface)),
      last_seen: number(row.last_seen) ?? 0,
      expires_at: number(row.expires_at),
      grants: asObject(row.grants) ?? {},
    };
  });
}

/** The grants that are left, with their time where they end before the session. */
function grantsOf({ grants, expires_at }: Row, now: number): string {
  const left = Object.entries(grants).flatMap(([grant, expiry]) => {
    const name = printable(grant).replace(/^voice:.*/, 'voice');
    if (expiry === null || expiry === expires_at) return [name];
    return typeof expiry === 'number' && expiry > now ? [`${name} ${duration(expiry - now)}`] : [];
  });
  return [...new Set(left)].join(', ') || 'none';
}

function cut(name: string): string {
  const text = printable(name);
  return text.length > MAX_NAME ? `${text.slice(0, MAX_NAME - 1)}…` : text;
}

function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  return whole < 2 * 86_400 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86_400)} d`;
}
