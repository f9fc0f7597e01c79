/**
 * `node rescan-probe.mjs <home> <parts> [bare]`: creates 200 profiles with 100 skills each in an empty directory and
 * scans all of them several times, changing every configuration before each scan. Prints one JSON object:
 * `{ cold, blocked, scan, profiles, skills }`: the longest event-loop stall in milliseconds, in the first scan and in
 * the best of the later ones; the duration of that one; and how much it found. `bare` only lists directories.
 *
 * It runs in its own process and counts the main thread's processor time where the kernel offers it, because wall time
 * includes stalls that other work on the machine causes.
 */
import { linkSync, mkdirSync, openSync, readSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

const PROFILES = 200;
const SKILLS = 100;
const CATEGORIES = 5;
const SCANS = 2;
const [home, parts, mode] = process.argv.slice(2);
const { createNodeHost, createProfiles } = await import(pathToFileURL(parts).href);

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

/** Milliseconds that the main thread has run; wall time where the kernel offers no schedstat. */
function ran() {
  if (schedule === null) return performance.now();
  const length = readSync(schedule, buffer, 0, buffer.length, 0);
  return Number(buffer.toString('latin1', 0, length).split(' ')[0]) / 1e6;
}

/** Samples the clock every millisecond while `task` runs: the longest gap between two samples, and the duration. */
async function measure(task) {
  let longest = 0;
  let last = ran();
  const began = performance.now();
  const sample = () => {
    const now = ran();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(sample, 1);
  await task();
  clearInterval(timer);
  sample();
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
  onChange() {},
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
