#!/usr/bin/env node
/**
 * `npm run bill [-- options]`: what the deployment of `wrangler.toml` costs, on paper. A scripted day of one home runs in the
 * local Workers runtime, which counts wakes, requests, messages, rows, alarms and the time that objects are awake; the price
 * table makes bills of a month for 1, 1,000 and 100,000 homes of that.
 *
 *   --silence SECONDS  how long nothing happens (60)
 *   --json             prints one JSON object instead of the tables
 *
 * The day is in `bill/day.mjs`, the prices in `bill/prices.mjs`. Exits with 1 when an idle home wakes or writes anything, and
 * with 2 when the run itself failed.
 */
import { parseArgs } from 'node:util';
import { countDay, countEvents, DAILY } from './bill/day.mjs';
import { billOf, PRICES } from './bill/prices.mjs';

const HOMES = [1, 1_000, 100_000];
/** Dollars a month that 100,000 homes would have cost before: idle tunnels, idle phones, agents that poll. */
const FORMER = { 'idle tunnels': 16_800, 'idle phones': 40_000, 'agents that poll': 415_000 };
const COLUMNS = ['wakes', 'requests', 'messages', 'alarms', 'rowsRead', 'rowsWritten', 'awakeMs', 'cpuMs'];

const { values } = parseArgs({
  options: { silence: { type: 'string', default: '60' }, json: { type: 'boolean', default: false } },
});
const silence = Number(values.silence);
if (!(silence >= 1)) {
  process.stderr.write('--silence must be a number of seconds\n');
  process.exit(2);
}

const line = (text = '') => process.stdout.write(`${text}\n`);
const figure = (value) => (value === 0 ? '0' : value < 10 ? value.toFixed(2) : Math.round(value).toLocaleString('en'));
const dollars = (value) => `$${value.toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;

function print(rows) {
  const widths = rows[0].map((_, at) => Math.max(...rows.map((row) => row[at].length)));
  for (const row of rows) {
    line(row.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]) : cell.padStart(widths[at]))).join('  '));
  }
  line();
}

try {
  const say = (name) => process.stderr.write(`${name}\n`);
  const events = await countEvents({ silence, say });
  const day = countDay(events);
  const idle = { ...events.silence, pings: day.pings };
  const bills = HOMES.map((homes) => ({
    idle: billOf(idle, homes),
    day: billOf(day, homes),
    withPings: billOf(day, homes, { pingsAreCharged: true }),
  }));
  if (values.json) {
    line(JSON.stringify({ prices: PRICES, events, day, bills, former: FORMER }));
  } else {
    print([
      ['Each time (silence: a day of it)', 'a day', ...COLUMNS],
      ...Object.entries(events).map(([name, costs]) => [
        name,
        String(DAILY[name]),
        ...COLUMNS.map((column) => figure(costs[column])),
      ]),
      ['the whole day of one home', '', ...COLUMNS.map((column) => figure(day[column]))],
    ]);
    const names = Object.keys(PRICES.items);
    print([
      ['Dollars a month', ...HOMES.map((homes) => `${homes.toLocaleString('en')} home${homes > 1 ? 's' : ''}`)],
      ...names.map((name) => [name, ...bills.map((bill) => dollars(bill.day.dollars[name]))]),
      ['plan', ...bills.map(() => dollars(PRICES.plan))],
      ['TOTAL of that day', ...bills.map((bill) => dollars(bill.day.total))],
      ['the same, if answered pings were charged', ...bills.map((bill) => dollars(bill.withPings.total))],
      ['a home where nothing happens', ...bills.map((bill) => dollars(bill.idle.total))],
      ...Object.entries(FORMER).map(([name, sum]) => [`before: ${name} alone`, '', '', dollars(sum)]),
    ]);
    line(`Prices: ${PRICES.source}, as of ${PRICES.date}. Storage: ${Math.ceil(day.storedBytes / 1024)} KiB a home.`);
  }
  const { wakes, rowsWritten, alarms } = events.silence;
  process.exitCode = wakes + rowsWritten + alarms > 0 ? 1 : 0;
} catch (error) {
  process.stderr.write(`bill: ${error.stack}\n`);
  process.exitCode = 2;
}
