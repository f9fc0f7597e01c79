import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInThisContext } from 'node:vm';
import { expect, it, onTestFinished } from 'vitest';
import { createMinorCollector, tuneCollection } from '../../cli/runtime/node/gc.ts';

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

/** Bytes of short-lived objects that V8 allocates among the old ones, by a line of code whose first objects lived long. */
function oldAfterLongLives(): number {
  type Make = (n: number) => { n: number; more: number[]; text: { n: number } };
  const make: Make = runInThisContext('(n) => ({ n, more: [n, n + 1], text: { n } })');
  let kept: unknown[] = [];
  for (let n = 0; n < 400_000; n++) kept.push(make(n));
  const used = () =>
    getHeapSpaceStatistics().find(({ space_name }) => space_name === 'old_space')?.space_used_size ?? 0;
  const before = used();
  kept = [];
  for (let n = 0; n < 20_000; n++) kept[0] = make(n);
  return used() - before;
}

it('allocates all objects of a request young', () => {
  onTestFinished(() => setFlagsFromString('--allocation-site-pretenuring'));
  // V8 may mark its heap in between, and free more than was allocated.
  expect(Math.max(oldAfterLongLives(), oldAfterLongLives(), oldAfterLongLives())).toBeGreaterThan(MiB);
  tuneCollection();
  expect(oldAfterLongLives()).toBeLessThan(MiB / 4);
});
