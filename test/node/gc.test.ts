import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { expect, it } from 'vitest';
import { createMinorCollector } from '../../cli/runtime/node/gc.ts';
import { temporaryDirectory } from '../support/temp.ts';

const MiB = 1024 * 1024;

/** Kinds of the collections that were asked for, not those that V8 has found necessary. */
function forcedCollections() {
  const kinds: number[] = [];
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as (PerformanceEntry & { detail: { kind: number; flags: number } })[]) {
      if (entry.detail.flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) kinds.push(entry.detail.kind);
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  return { kinds, end: () => observer.disconnect() };
}

it('collects the young objects, and nothing else, whenever so many bytes were carried', async () => {
  const { kinds, end } = forcedCollections();
  const carry = createMinorCollector();
  for (let carried = 0; carried < 6 * MiB; carried += 64 * 1024) carry(64 * 1024);
  carry(MiB);
  const expected = new Array(3).fill(constants.NODE_PERFORMANCE_GC_MINOR);
  await expect.poll(() => kinds).toEqual(expected);
  end();
});

it('does not give a collector to the rest of the process', () => {
  createMinorCollector()(2 * MiB);
  expect('gc' in globalThis).toBe(false);
});

/** Prints how many bytes of short-lived objects are allocated old, by a line of code whose first objects have lived long. */
const OLD_AFTER_LONG_LIVES = `
  const make = (n) => ({ n, more: [n, n + 1], text: { n } });
  const kept = [];
  for (let n = 0; n < 400_000; n++) kept.push(make(n));
  kept.length = 0;
  const used = () => getHeapSpaceStatistics().find(({ space_name }) => space_name === 'old_space').space_used_size;
  const before = used();
  for (let n = 0; n < 20_000; n++) kept[0] = make(n);
  console.log(used() - before);`;

it('allocates all objects of a request young', async () => {
  const file = join(await temporaryDirectory(), 'gc.mjs');
  await build({
    entryPoints: ['cli/runtime/node/gc.ts'],
    outfile: file,
    bundle: true,
    platform: 'node',
    format: 'esm',
  });
  // In processes of their own, whose heap nothing else uses. With a single thread, V8 decides by what has run, not by when
  // another thread has compiled or marked.
  const oldBytes = async (first: string) => {
    const program = `import { getHeapSpaceStatistics } from 'node:v8'; ${first} ${OLD_AFTER_LONG_LIVES}`;
    const run = await promisify(execFile)(process.execPath, [
      '--single-threaded',
      '--input-type=module',
      '-e',
      program,
    ]);
    return Number(run.stdout);
  };
  expect(await oldBytes('')).toBeGreaterThan(MiB);
  expect(await oldBytes(`import { tuneCollection } from '${pathToFileURL(file)}'; tuneCollection();`)).toBeLessThan(
    MiB / 4,
  );
});
