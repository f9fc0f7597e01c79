import fc from 'fast-check';
import { expect, it } from 'vitest';
import { openRing } from '../../../lib/kit/ring.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

type Entry = { n: number };

const setup = () => ({
  store: memoryStores().open('notifications'),
  clock: createTestClock(),
  log: createTestLog(),
  name: 'the test ring',
});

it('the ring keeps the newest, newest first, over any number of sleeps', async () => {
  const lives = fc.array(fc.nat({ max: 15 }), { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(lives, fc.integer({ min: 1, max: 12 }), fc.nat({ max: 20 }), async (counts, size, limit) => {
      const deps = { ...setup(), size };
      const entries: Entry[] = [];
      for (const count of counts) {
        const ring = await openRing<Entry>(deps);
        for (let added = 0; added < count; added++) {
          const entry = { n: entries.length };
          entries.push(entry);
          ring.add(entry);
        }
        expect(ring.list(limit)).toEqual(entries.toReversed().slice(0, Math.min(size, limit)));
        await deps.clock.advanceAsync(1_000);
      }
      expect((await deps.store.getKeys()).length).toBe(Math.min(size, entries.length));
    }),
    { numRuns: 50 },
  );
});

it('an entry that changed later is stored again, unless another has taken its slot', async () => {
  const deps = { ...setup(), size: 2 };
  const ring = await openRing<Entry>(deps);
  const [first, second] = [{ n: 1 }, { n: 2 }];
  const saveFirst = ring.add(first);
  const saveSecond = ring.add(second);
  await deps.clock.advanceAsync(1_000);
  ring.add({ n: 3 });
  first.n = 10;
  saveFirst();
  second.n = 20;
  saveSecond();
  await deps.clock.advanceAsync(1_000);

  const found: Entry[] = [];
  const saves: (() => void)[] = [];
  const woken = await openRing<Entry>({ ...deps, loaded: (entry, save) => [found.push(entry), saves.push(save)] });
  expect(found).toEqual([{ n: 20 }, { n: 3 }]);
  (found[0] as Entry).n = 21;
  saves[0]?.();
  await deps.clock.advanceAsync(1_000);
  expect(woken.list(9)).toEqual([{ n: 3 }, { n: 21 }]);
  expect((await openRing<Entry>(deps)).list(9)).toEqual([{ n: 3 }, { n: 21 }]);
});

it('a damaged record leaves a gap', async () => {
  const deps = setup();
  const ring = await openRing<Entry>(deps);
  for (let n = 0; n < 4; n++) ring.add({ n });
  await deps.clock.advanceAsync(1_000);
  await deps.store.setItem('1', { seq: 1, json: '{' });
  await deps.store.setItem('2', { seq: 102, json: '{"n":5}' });
  await deps.store.setItem('7', { seq: 3, json: '{"n":6}' });
  const woken = await openRing<Entry>({ ...deps, isEntry: ({ n }) => n !== 0 });
  expect(woken.list(9)).toEqual([{ n: 5 }, { n: 3 }]);
  expect((await deps.store.getKeys()).sort()).toEqual(['2', '3']);
});
