/**
 * `node rescan-probe.mjs <home> [bare]`: makes 200 profiles with 100 skills each in an empty directory and looks at all
 * of them several times, with every configuration changed before each. Prints one JSON object:
 * `{ cold, blocked, scan, profiles, skills }`: the longest time in milliseconds that the event loop stood still, in the
 * first scan and in the best of the later ones; how long that one took; what was found. `bare` only lists directories.
 * In a process of its own, and, where the kernel tells it, in time that the main thread had a processor: what else runs
 * on the machine stops it too.
 */
import { linkSync, mkdirSync, openSync, readSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { createNodeHost } from '../../../dist/lib/host/node/index.js';
import { createProfiles } from '../../../dist/lib/profiles/profiles.js';

const PROFILES = 200;
const SKILLS = 100;
const CATEGORIES = 5;
const SCANS = 2;
const [home, mode] = process.argv.slice(2);

const config = (profile, round) =>
  `# ${round}\nmodel:\n  default: model-${profile}\n  provider: acme\ndescription: Number ${profile}\n` +
  Array.from({ length: 40 }, (_, at) => `section${at}:\n  enabled: yes\n  list: [one, two]\n`).join('');

function configure(round) {
  for (let profile = 0; profile < PROFILES; profile++) {
    writeFileSync(`${home}/profiles/p${profile}/config.yaml`, config(profile, round));
  }
}

writeFileSync(`${home}/skill`, '');
for (let profile = 0; profile < PROFILES; profile++) {
  const skills = `${home}/profiles/p${profile}/skills`;
  for (let category = 0; category < CATEGORIES; category++) mkdirSync(`${skills}/c${category}`, { recursive: true });
  for (let skill = 0; skill < SKILLS; skill++) {
    const directory = `${skills}/c${skill % CATEGORIES}/s${skill}`;
    mkdirSync(directory);
    linkSync(`${home}/skill`, `${directory}/SKILL.md`);
  }
}

const buffer = Buffer.alloc(128);
const schedule = openSchedule();

function openSchedule() {
  try {
    return openSync('/proc/self/schedstat', 'r');
  } catch {
    return null;
  }
}

/** Milliseconds that the main thread has run; wall time where the kernel does not say. */
function ran() {
  if (schedule === null) return performance.now();
  const length = readSync(schedule, buffer, 0, buffer.length, 0);
  return Number(buffer.toString('latin1', 0, length).split(' ')[0]) / 1e6;
}

/** The longest time between two looks, a millisecond apart, while `task` runs, and how long all of it took. */
async function measure(task) {
  let longest = 0;
  let last = ran();
  const began = performance.now();
  const look = () => {
    const now = ran();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(look, 1);
  await task();
  clearInterval(timer);
  look();
  return { blocked: longest, scan: performance.now() - began };
}

async function walk(directory) {
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    if (entry.isDirectory()) await walk(`${directory}/${entry.name}`);
  }
}

const log = { debug() {}, info() {}, warn() {}, error() {}, named: () => log };
const profiles = createProfiles({
  host: createNodeHost({ agentHome: home, env: {} }),
  config: { agentConfig: `${home}/config.yaml`, webapiUrl: 'http://localhost:8642', profileDiscovery: true },
  clock: { now: Date.now, monotonic: () => performance.now(), after: () => () => {} },
  log,
  changed() {},
});
const task = mode === 'bare' ? () => walk(home) : () => profiles.rescan();

const results = [];
for (let round = 0; round <= SCANS; round++) {
  configure(round);
  results.push(await measure(task));
}
const [cold, ...later] = results;
const best = later.reduce((a, b) => (b.blocked < a.blocked ? b : a));
const rows = profiles.rows();
const skills = rows.reduce((sum, row) => sum + row.skill_count, 0);
process.stdout.write(`${JSON.stringify({ cold: cold.blocked, ...best, profiles: rows.length, skills })}\n`);
