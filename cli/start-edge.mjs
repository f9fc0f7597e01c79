// `npm run start:edge`: the relay under the local Workers runtime, with wrangler's options after `--`.
import { createRequire, runMain } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const PORT = '8787';

/**
 * Words for wrangler: `wrangler dev` on port 8787 as localhost, unless `given` names another port or host. Without a
 * host, wrangler would send that of a route in wrangler.toml, and each local call would be redirected to https.
 */
export function edgeWords(given) {
  const options = { port: { type: 'string' }, host: { type: 'string' }, 'upstream-protocol': { type: 'string' } };
  const { values } = parseArgs({ args: given, options, strict: false });
  const { port, host, 'upstream-protocol': protocol } = values;
  return [
    'dev',
    '--local',
    ...(port === undefined ? ['--port', PORT] : []),
    ...(host === undefined ? ['--host', `localhost:${port ?? PORT}`] : []),
    ...(protocol === undefined ? ['--upstream-protocol', 'http'] : []),
    '--var',
    'RELAY_PUBLIC_URL:',
    ...given,
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const require = createRequire(import.meta.url);
  const wrangler = join(dirname(require.resolve('wrangler/package.json')), 'bin', 'wrangler.js');
  process.argv.splice(1, process.argv.length, wrangler, ...edgeWords(process.argv.slice(2)));
  // wrangler starts itself only as the main module, so it takes the place of this one.
  runMain();
}
