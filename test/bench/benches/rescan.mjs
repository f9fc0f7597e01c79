import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const PROBE = fileURLToPath(new URL('../support/rescan-probe.mjs', import.meta.url));

/** Longest event-loop stall during a scan of 200 profiles with 100 skills each; bare only lists directories. */
async function probe(...args) {
  const home = await mkdtemp(join(tmpdir(), 'svc-bench-'));
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [PROBE, home, ...args]);
    return JSON.parse(stdout).blocked;
  } finally {
    await rm(home, { recursive: true, force: true });
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
