import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const PARTS = fileURLToPath(new URL('../support/rescan-parts.mjs', import.meta.url));
const PROBE = fileURLToPath(new URL('../support/rescan-probe.mjs', import.meta.url));

/** Longest event-loop stall during a scan of 200 profiles with 100 skills each; bare only lists directories. */
async function probe(dist, ...args) {
  const directory = await mkdtemp(join(tmpdir(), 'svc-bench-'));
  const parts = join(directory, 'parts.mjs');
  const home = join(directory, 'home');
  try {
    await mkdir(home);
    await run(process.execPath, [PARTS, dirname(dist), parts]);
    const { stdout } = await run(process.execPath, [PROBE, home, parts, ...args]);
    return JSON.parse(stdout).blocked;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export default {
  name: 'rescan',
  title: 'longest event-loop stall, scan of 200 profiles',
  unit: 'ms',
  max: 20,
  rounds: 1,
  prepare: async ({ dist }) => ({ relay: () => probe(dist), bare: () => probe(dist, 'bare') }),
};
