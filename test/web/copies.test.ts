import fc from 'fast-check';
import { expect, it, onTestFinished, vi } from 'vitest';
import { openCopies } from '../../handlers/web/app/media/copies.ts';
import type { PageStore } from '../../handlers/web/app/page-store.ts';

const MiB = 1024 * 1024;
const DAY = 86_400_000;

/** What a browser keeps, in memory. */
function memory() {
  const rows = new Map<string, unknown>();
  const keep: Pick<PageStore, 'read' | 'change' | 'remove'> = {
    read: async <T>(name: string) => rows.get(name) as T | undefined,
    async change<T>(name: string, change: (value: T | undefined) => T) {
      rows.set(name, change(rows.get(name) as T | undefined));
      return rows.get(name) as T;
    },
    async remove(name) {
      rows.delete(name);
    },
  };
  return { rows, copies: openCopies(keep as PageStore) };
}

/** A file that says that it has so many bytes. */
const file = (size: number): File => ({ name: 'a', type: 'image/png', size }) as File;

it('gives the newest files up to 64 MiB and 100 of them, and keeps no bytes of others', () => {
  const sizes = fc.array(fc.integer({ min: 0, max: 64 }), { maxLength: 130 });
  return fc.assert(
    fc.asyncProperty(sizes, async (all) => {
      const { rows, copies } = memory();
      for (const [n, size] of all.entries()) await copies.add(`t${n}`, file(size * MiB), Date.now() + DAY);
      const left: number[] = [];
      for (const n of all.keys()) if (await copies.get(`t${n}`)) left.push(n);
      const bytes = left.reduce((sum, n) => sum + (all[n] ?? 0), 0);
      expect([bytes <= 64, left.length <= 100]).toEqual([true, true]);
      // None makes room for an older one.
      expect(left).toEqual([...all.keys()].slice(all.length - left.length));
      expect([...rows.keys()].filter((name) => name.startsWith('copy ')).length).toBe(left.length);
    }),
    { numRuns: 50 },
  );
});

it('gives none that has expired at the relay, or was forgotten, and replaces one', async () => {
  vi.useFakeTimers({ now: 0 });
  onTestFinished(() => void vi.useRealTimers());
  const { rows, copies } = memory();
  await copies.add('one', file(1), DAY);
  await copies.add('two', file(2), 2 * DAY);
  await copies.add('two', file(3), 2 * DAY);
  expect([(await copies.get('one'))?.size, (await copies.get('two'))?.size]).toEqual([1, 3]);
  vi.setSystemTime(DAY);
  expect(await copies.get('one')).toBeUndefined();
  await copies.add('three', file(4), 3 * DAY);
  expect([...rows.keys()].sort()).toEqual(['copies', 'copy three', 'copy two']);
  // One that would take all the room takes none.
  await copies.add('four', file(65 * MiB), 3 * DAY);
  expect([await copies.get('four'), (await copies.get('three'))?.size]).toEqual([undefined, 4]);
  await copies.remove('two');
  expect([await copies.get('two'), [...rows.keys()].sort()]).toEqual([undefined, ['copies', 'copy three']]);
});
