/**
 * `node rescan-parts.mjs <checkout> <outfile>`: bundles the parts of the relay that `rescan-probe.mjs` runs. A build has
 * no files of their own for them.
 */
import { build } from 'esbuild';

const [resolveDir, outfile] = process.argv.slice(2);
await build({
  stdin: {
    contents: `export { createNodeHost } from './lib/host/node/index.ts';
      export { createProfiles } from './lib/profiles/profiles.ts';`,
    resolveDir,
  },
  outfile,
  bundle: true,
  format: 'esm',
  platform: 'node',
  banner: { js: "import { createRequire as make } from 'node:module'; const require = make(import.meta.url);" },
  external: ['libsql', '@lydell/node-pty'],
  logLevel: 'error',
});
