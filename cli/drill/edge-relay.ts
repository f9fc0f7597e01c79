import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { openOperatorSigner } from '../operator-signer.ts';
import { CommandError, printable } from '../output.ts';
import { createProcess, type DrillRelay, END_WITH_PARENT, freePort } from './process.ts';

/** Sources of the Worker, which a package does not contain. */
const WORKER = 'cli/runtime/edge/worker.ts';
/** Only a checkout has them: `devDependencies`. */
const PACKAGES = ['esbuild', 'miniflare'];
/** As in `wrangler.toml`. */
const COMPATIBILITY_DATE = '2026-03-01';
const NAME = 'drill';
/** Seconds. */
const TOKEN_LIFETIME = 300;

/** Runs the runtime until it is killed. Its arguments are the URL of the package, and the options. */
const PROGRAM = `const [url, options] = process.argv.slice(1);
const { Miniflare, Log, LogLevel } = await import(url);
await new Miniflare({ ...JSON.parse(options), log: new Log(LogLevel.ERROR) }).ready;`;

/**
 * The relay as a Durable Object in the local Workers runtime, bundled from the sources of this checkout.
 * @throws CommandError for an installation without the sources, or without the packages.
 */
export function openEdge(directory: string | null): (folder: string) => Promise<DrillRelay> {
  if (directory === null || !existsSync(join(directory, WORKER))) {
    throw new CommandError(
      '--edge runs the Worker from its sources, and this installation has none',
      'Run it in a checkout of svc-relay, after npm ci: npx svc relay drill --edge',
    );
  }
  const require = createRequire(join(directory, 'package.json'));
  const missing = PACKAGES.filter((name) => !isInstalled(require, name));
  if (missing.length > 0) {
    const what = missing.length === 1 ? 'a package that is' : 'packages that are';
    throw new CommandError(
      `--edge needs ${what} not installed: ${missing.join(', ')}`,
      `Run in ${printable(directory)}: npm ci`,
    );
  }
  const urlOf = (name: string) => pathToFileURL(require.resolve(name)).href;
  return (folder) => createEdgeRelay(folder, { directory, esbuild: urlOf('esbuild'), miniflare: urlOf('miniflare') });
}

function isInstalled(require: NodeJS.Require, name: string): boolean {
  try {
    require.resolve(name);
    return true;
  } catch {
    return false;
  }
}

interface Packages {
  directory: string;
  /** URLs of their modules. */
  esbuild: string;
  miniflare: string;
}

async function createEdgeRelay(folder: string, { directory, esbuild, miniflare }: Packages): Promise<DrillRelay> {
  const home = join(folder, 'home');
  const temporary = join(folder, 'tmp');
  await Promise.all([home, temporary].map((path) => mkdir(path, { mode: 0o700 })));
  const scriptPath = join(folder, 'worker.mjs');
  const { build } = ((await import(esbuild)) as { default: typeof import('esbuild') }).default;
  await build({
    absWorkingDir: directory,
    entryPoints: [WORKER],
    outfile: scriptPath,
    bundle: true,
    format: 'esm',
    target: 'es2023',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*', 'node:*'],
    // As in `wrangler.toml`.
    alias: { 'svc-relay-pages': './dist/cli/pages.js' },
    logLevel: 'error',
  });
  const signer = await openOperatorSigner(home);
  const port = await freePort();
  const options = {
    modules: true,
    scriptPath,
    modulesRoot: folder,
    modulesRules: [{ type: 'ESModule', include: ['**/*.mjs'] }],
    compatibilityDate: COMPATIBILITY_DATE,
    host: '127.0.0.1',
    port,
    cf: false,
    bindings: { RELAY_NAME: NAME, RELAY_OPERATOR_PUBLIC_KEY: signer.publicKey },
    durableObjects: { RELAY: { className: 'RelayObject', useSQLite: true } },
    durableObjectsPersist: join(folder, 'objects'),
    r2Buckets: ['MEDIA'],
    r2Persist: join(folder, 'media'),
  };
  const { start, kill } = createProcess({
    args: [...END_WITH_PARENT, '--input-type=module', '--eval', PROGRAM, '--', miniflare, JSON.stringify(options)],
    env: { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: temporary },
    port,
  });
  return {
    port,
    hasShell: false,
    isMediaDurable: true,
    async operator() {
      return { authorization: `Bearer ${(await signer.sign(NAME, TOKEN_LIFETIME)).token}` };
    },
    start,
    kill,
  };
}
