/**
 * `node rescan-parts.mjs <checkout> <outfile>`: bundles the parts of the relay that `rescan-probe.mjs` runs. A build has
 * no files of their own for them.
 */
import { symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
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
// For packages that the relay resolves as it runs.
await symlink(join(resolveDir, 'node_modules'), join(dirname(outfile), 'node_modules')).catch((error) => {
  if (error.code !== 'EEXIST') throw error;
});
