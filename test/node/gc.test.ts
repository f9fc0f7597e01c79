import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { expect, it } from 'vitest';
import { createMinorCollector } from '../../cli/runtime/node/gc.ts';

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
