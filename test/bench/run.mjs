#!/usr/bin/env node
/**
 * `npm run bench [-- [--json] [name ...]]`: the relay beside a bare baseline that does the least for the same bytes,
 * in one run on this machine. Ratios are what count: absolute figures belong to the machine.
 *
 * A bench is a file in `benches/` and a line in the table below; see `support/bench.mjs` for what it exports.
 * Leaves with 1 when a figure misses its bound, and with 2 when the bench itself failed.
 */
import bridge from './benches/bridge.mjs';
import bridgeP50 from './benches/bridge-p50.mjs';
import connect from './benches/connect.mjs';
import health from './benches/health.mjs';
import media from './benches/media.mjs';
import mediaMemory from './benches/media-memory.mjs';
import memory from './benches/memory.mjs';
import ping from './benches/ping.mjs';
import rescan from './benches/rescan.mjs';
import sessions from './benches/sessions.mjs';
import sockets from './benches/sockets.mjs';
import start from './benches/start.mjs';
import terminal from './benches/terminal.mjs';
import terminalEcho from './benches/terminal-echo.mjs';
import terminalTmux from './benches/terminal-tmux.mjs';
import uploads from './benches/uploads.mjs';
import { runBench } from './support/bench.mjs';
import { Stage } from './support/processes.mjs';
import { formatHead, formatRow, machine } from './support/report.mjs';

/** THE table of benches, in the order they run. */
const benches = [
  health,
  sessions,
  ping,
  connect,
  bridge,
  bridgeP50,
  terminal,
  terminalTmux,
  terminalEcho,
  media,
  mediaMemory,
  uploads,
  start,
  memory,
  rescan,
  sockets,
];

const args = process.argv.slice(2);
const asJson = args.includes('--json');
const names = args.filter((arg) => arg !== '--json');
const unknown = names.filter((name) => !benches.some((bench) => bench.name === name));
const say = (text) => void (asJson || process.stdout.write(`${text}\n`));

if (unknown.length > 0) {
  process.stderr.write(`no bench ${unknown.join(', ')}; there are: ${benches.map(({ name }) => name).join(', ')}\n`);
  process.exit(2);
}

const rows = [];
let failed = false;
say(formatHead(machine()));
for (const bench of benches) {
  if (names.length > 0 && !names.includes(bench.name)) continue;
  const stage = new Stage();
  try {
    const row = await runBench(bench, stage);
    rows.push(row);
    say(formatRow(row));
  } catch (error) {
    failed = true;
    process.stderr.write(`${bench.name} failed: ${error.stack}\n${stage.complaints()}`);
  } finally {
    await stage.clear();
  }
}
if (asJson) process.stdout.write(`${JSON.stringify({ machine: machine(), benches: rows }, null, 2)}\n`);
process.exitCode = failed ? 2 : rows.every((row) => row.ok) ? 0 : 1;
