import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  export interface ProvidedContext {
    edgeBundle: string;
  }
}

/** Bundles the edge entry for the tests once per run, as a deployment would. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const outfile = join(tmpdir(), `svc-relay-worker-${process.pid}.mjs`);
  await build({
    entryPoints: ['test/support/edge-entry.ts'],
    outfile,
    bundle: true,
    format: 'esm',
    target: 'es2023',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*', 'node:*'],
    logLevel: 'error',
  });
  project.provide('edgeBundle', outfile);
  return () => rm(outfile, { force: true });
}
