import type { Command } from 'cac';
import { RelayError } from '../../lib/errors.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import { objects } from '../devices/rows.ts';
import { openOperatorRelay } from '../operator-relay.ts';
import { flag, type Options, option } from '../options.ts';
import { type CommandContext, printJson, sentence } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import { age, cell, printMessages } from './list.ts';

const DEFAULT_COUNT = 20;
const MAX_COUNT = 200;
/** A relay stores 500 items. */
const MAX_PAGES = 10;
const MAX_TEXT = 60;
const MAX_LABEL = 24;

/** `svc phone history`: the last messages and replies, with their states (contract 09 §1). */
export function define(command: Command): void {
  command
    .option('-n, --limit <n>', `how many of the last (default ${DEFAULT_COUNT}, at most ${MAX_COUNT})`)
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} history`)
    .example((name) => `${name} history -n 100 --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const count = option(options, '--limit', asCount) ?? DEFAULT_COUNT;
  const relay = await openOperatorRelay(options, context);
  const page = (since: number, limit: number) =>
    relay.call({ method: 'GET', path: `/phone/history?since=${since}&limit=${limit}` });
  // The relay lists forwards from a number, so the newest one is requested first.
  const { latest } = await page(0, 1);
  const newest = typeof latest === 'number' ? latest : 0;
  let answer = await page(Math.max(0, newest - count), count);
  // The numbers at the edge of a mirror have gaps.
  if (objects(answer.items).length < Math.min(count, newest)) answer = { ...answer, items: await lastOf(page, count) };
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  const items = objects(answer.items);
  if (items.length === 0)
    return sentence(context.stdout, `No messages yet. Send one with: ${context.program} send "Hello"`);
  const now = Date.now();
  const rows = items.map((row) => [
    typeof row.ts === 'number' ? `${age(now - row.ts)} ago` : '-',
    row.kind === 'reply' ? 'from phone' : 'to phone',
    typeof row.late === 'string' ? 'too late' : cell(row.state, MAX_LABEL),
    cell(row.message_id, MAX_LABEL),
    cell(row.chat_id, MAX_LABEL),
    cell(row.text, MAX_TEXT),
  ]);
  printMessages([['WHEN', 'KIND', 'STATE', 'ID', 'CHAT', 'TEXT'], ...rows], context);
}

/** The last items of the whole history. */
async function lastOf(page: (since: number, limit: number) => Promise<JsonObject>, count: number) {
  const all: JsonObject[] = [];
  for (let since = 0, pages = 0; pages < MAX_PAGES; pages++) {
    const rows = objects((await page(since, MAX_COUNT)).items);
    all.push(...rows);
    if (rows.length < MAX_COUNT) break;
    since = Number(rows.at(-1)?.seq);
  }
  return [...new Map(all.map((row) => [row.seq, row])).values()]
    .sort((a, b) => Number(a.seq) - Number(b.seq))
    .slice(-count);
}

function asCount(text: string): number {
  const count = Number(text);
  if (/^\d{1,3}$/.test(text) && count >= 1 && count <= MAX_COUNT) return count;
  throw new RelayError('invalid', `must be a whole number from 1 to ${MAX_COUNT}`);
}
