#!/usr/bin/env node
/**
 * `npm run bench [-- [options] [name ...]]`: the relay beside a bare baseline that does the minimum for the same bytes,
 * in one run on this machine. Ratios are what count, those of server CPU per operation most of all: absolute figures
 * belong to the machine, and throughput to how busy it is.
 *
 *   --former PATH  also measures the relay of another built checkout (its folder or its `dist/cli/svc.js`)
 *   --rounds N     measures every side N times
 *   --json         prints one JSON object instead of the table
 *
 * Each bench is a file in `benches/` and a line in the table below; `support/bench.mjs` says what it exports.
 * Exits with 1 when a figure misses its bound, and with 2 when the bench itself failed.
 */
import { existsSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import bridge from './benches/bridge.mjs';
import bridgeP50 from './benches/bridge-p50.mjs';
import brokerTunnels from './benches/broker-tunnels.mjs';
import connect from './benches/connect.mjs';
import health from './benches/health.mjs';
import ingress from './benches/ingress.mjs';
import manySessions from './benches/many-sessions.mjs';
import mcp from './benches/mcp.mjs';
import media from './benches/media.mjs';
import mediaMemory from './benches/media-memory.mjs';
import memory from './benches/memory.mjs';
import phoneMessages from './benches/phone-messages.mjs';
import ping from './benches/ping.mjs';
import reach from './benches/reach.mjs';
import rescan from './benches/rescan.mjs';
import secureLink from './benches/secure-link.mjs';
import sessions from './benches/sessions.mjs';
import sockets from './benches/sockets.mjs';
import start from './benches/start.mjs';
import terminal from './benches/terminal.mjs';
import terminalEcho from './benches/terminal-echo.mjs';
import terminalTmux from './benches/terminal-tmux.mjs';
import transcribe from './benches/transcribe.mjs';
import upload from './benches/upload.mjs';
import uploads from './benches/uploads.mjs';
import voice from './benches/voice.mjs';
import voiceAgent from './benches/voice-agent.mjs';
import { runBench } from './support/bench.mjs';
import { Stage } from './support/processes.mjs';
import { formatHead, formatRow, load, machine } from './support/report.mjs';

/** THE table of benches, in the order they run. */
const benches = [
  health,
  ...sessions,
  ...ingress,
  ...secureLink,
  ...reach,
  ping,
  ...connect,
  bridge,
  bridgeP50,
  ...mcp,
  terminal,
  terminalTmux,
  terminalEcho,
  ...phoneMessages,
  media,
  mediaMemory,
  upload,
  uploads,
  ...start,
  memory,
  rescan,
  sockets,
  ...voice,
  ...voiceAgent,
  ...transcribe,
  ...manySessions,
  brokerTunnels,
];

function usageError(text) {
  process.stderr.write(`${text}\n`);
  process.exit(2);
}

/** The options and benches that the command line selects. */
function readArguments() {
  let parsed;
  try {
    parsed = parseArgs({
      allowPositionals: true,
      options: { former: { type: 'string' }, rounds: { type: 'string' }, json: { type: 'boolean', default: false } },
    });
  } catch (error) {
    usageError(error.message);
  }
  const { values, positionals: names } = parsed;
  const unknown = names.filter((name) => !benches.some((bench) => bench.name === name));
  const all = benches.map(({ name }) => name).join(', ');
  if (unknown.length > 0) usageError(`no bench ${unknown.join(', ')}; choose from: ${all}`);
  if (values.rounds !== undefined && !/^[1-9]\d*$/.test(values.rounds)) usageError('--rounds takes a number from 1');
  return {
    asJson: values.json,
    former: values.former && relayOf(values.former),
    rounds: values.rounds && Number(values.rounds),
    chosen: benches.filter(({ name }) => names.length === 0 || names.includes(name)),
  };
}

/** The executable of a built checkout, given the checkout or the executable itself. */
function relayOf(path) {
  const file = existsSync(path) && statSync(path).isDirectory() ? join(path, 'dist/cli/svc.js') : path;
  if (!existsSync(file)) usageError(`no built relay at ${file}`);
  return resolve(file);
}

const { asJson, former, rounds, chosen } = readArguments();
const say = (text) => void (asJson || process.stdout.write(`${text}\n`));
const host = machine();
const rows = [];
let failed = false;

say(formatHead(host, former));
for (const bench of chosen) {
  const stage = new Stage();
  const formerStage = former && new Stage(former);
  const stages = [stage, formerStage].filter(Boolean);
  try {
    const row = { ...(await runBench(bench, { stage, formerStage, rounds })), load: load() };
    rows.push(row);
    say(formatRow(row, former));
  } catch (error) {
    failed = true;
    process.stderr.write(`${bench.name} failed: ${error.stack}\n${stages.map((each) => each.complaints()).join('')}`);
  } finally {
    await Promise.all(stages.map((each) => each.clear()));
  }
}
say(`\nload ${load()}`);
if (asJson) process.stdout.write(`${JSON.stringify({ machine: host, former, benches: rows }, null, 2)}\n`);
process.exitCode = failed ? 2 : rows.every((row) => row.ok) ? 0 : 1;
