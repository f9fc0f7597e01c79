import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';

const PROBE = fileURLToPath(new URL('../support/rescan-probe.mjs', import.meta.url));

/** Bundles the parts of the relay that the probe runs. A build has no files of their own for them. */
const bundle = (checkout, outfile) =>
  build({
    stdin: {
      contents: `export { createNodeHost } from './lib/host/node/index.ts';
        export { createProfiles } from './lib/profiles/profiles.ts';`,
      resolveDir: checkout,
    },
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    banner: { js: "import { createRequire as make } from 'node:module'; const require = make(import.meta.url);" },
    external: ['libsql', '@lydell/node-pty'],
    logLevel: 'error',
  });

/** Longest event-loop stall during a scan of 200 profiles with 100 skills each; bare only lists directories. */
async function probe(dist, ...args) {
  const directory = await mkdtemp(join(tmpdir(), 'svc-bench-'));
  const parts = join(directory, 'parts.mjs');
  const home = join(directory, 'home');
  try {
    await mkdir(home);
    await bundle(dirname(dist), parts);
    const { stdout } = await promisify(execFile)(process.execPath, [PROBE, home, parts, ...args]);
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
