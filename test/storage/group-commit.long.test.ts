import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'esbuild';
import fc from 'fast-check';
import { Log, LogLevel, Miniflare } from 'miniflare';
import { afterAll, afterEach, describe, it } from 'vitest';
import { POISON, type Result } from '../support/store-turns.ts';
import { cleanups, compare, directory, turnsOf } from './commits.ts';

afterAll(() => rm(directory, { recursive: true, force: true }));
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

describe('turns of writes and reads agree with a model that commits them one after another (design 4)', () => {
  it('in a Durable Object, with transactions that fail', async () => {
    const scriptPath = join(directory, 'worker.mjs');
    await build({
      entryPoints: ['test/support/store-worker.ts'],
      outfile: scriptPath,
      bundle: true,
      format: 'esm',
      target: 'es2023',
      conditions: ['workerd', 'worker', 'browser'],
      external: ['cloudflare:*', 'node:*'],
      logLevel: 'error',
    });
    const miniflare = new Miniflare({
      modules: true,
      scriptPath,
      modulesRoot: directory,
      modulesRules: [{ type: 'ESModule', include: ['**/*.mjs'] }],
      compatibilityDate: '2026-03-01',
      cf: false,
      log: new Log(LogLevel.ERROR),
      durableObjects: { STORES: { className: 'StoreObject', useSQLite: true } },
    });
    cleanups.push(() => miniflare.dispose());
    let objects = 0;
    await fc.assert(
      fc.asyncProperty(turnsOf(['a', 'b', 'c', POISON]), async (turns) => {
        const url = `http://stores.test/${objects++}`;
        await compare(turns, async (turn) => {
          const response = await miniflare.dispatchFetch(url, { method: 'POST', body: JSON.stringify(turn) });
          return (await response.json()) as Result[];
        });
      }),
      { numRuns: 40 },
    );
  });
});
