import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  export interface ProvidedContext {
    edgeBundle: string;
    brokerBundle: string;
    runtimes: ('node' | 'edge')[];
    isLong: boolean;
  }
}

/** One for all projects of a run, each of which loads this module anew. */
const BUNDLES = Symbol.for('svc-relay tests: bundles');
type Bundles = Promise<[relay: string, broker: string]>;

/** Bundles the edge entries, once per run, as deployments would. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const run = globalThis as { [BUNDLES]?: Bundles };
  run[BUNDLES] ??= Promise.all([
    bundle('test/support/edge-entry.ts', 'worker'),
    bundle('cli/runtime/edge/broker-worker.ts', 'broker'),
  ]);
  const [relay, broker] = await run[BUNDLES];
  project.provide('edgeBundle', relay);
  project.provide('brokerBundle', broker);
  return async () => {
    run[BUNDLES] = undefined;
    await rm(relay, { force: true });
    await rm(broker, { force: true });
  };
}

/** Bundles an entry into a file of the temporary folder; its path. */
export async function bundle(entry: string, name: string): Promise<string> {
  const outfile = join(tmpdir(), `svc-relay-${name}-${process.pid}.mjs`);
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    format: 'esm',
    target: 'es2023',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*', 'node:*'],
    // As in `wrangler.toml`.
    alias: { 'svc-relay-pages': './dist/cli/pages.js' },
    logLevel: 'error',
  });
  return outfile;
}
