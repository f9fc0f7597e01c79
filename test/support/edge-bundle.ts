import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  export interface ProvidedContext {
    edgeBundle: string;
    brokerBundle: string;
  }
}

/** Bundles the edge entries for the tests of a project, once per run, as deployments would. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const relay = await bundle('test/support/edge-entry.ts', `worker-${project.name}`);
  const broker = await bundle('cli/runtime/edge/broker-worker.ts', `broker-${project.name}`);
  project.provide('edgeBundle', relay);
  project.provide('brokerBundle', broker);
  return async () => {
    await rm(relay, { force: true });
    await rm(broker, { force: true });
  };
}

async function bundle(entry: string, name: string): Promise<string> {
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
