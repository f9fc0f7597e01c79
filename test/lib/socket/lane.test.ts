import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Lane } from '../../../lib/socket/lane.ts';

const quiet = { crowded: () => {}, relieved: () => {} };

/** Jobs that finish when told to, and what they did. */
function bench(signals = quiet) {
  const lane = new Lane(signals);
  const started: number[] = [];
  const running: (() => void)[] = [];
  let next = 0;
  return {
    lane,
    started,
    sync() {
      const index = next++;
      lane.push(() => void started.push(index));
    },
    wait() {
      const index = next++;
      lane.push(() => {
        started.push(index);
        return new Promise<void>((resolve) => {
          running.push(resolve);
        });
      });
    },
    async finish() {
      running.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    },
    running: () => running.length,
  };
}

it('contract 02 §1.6: a job that needs no waiting runs at once', () => {
  const { lane, started, sync } = bench();
  sync();
  sync();
  expect(started).toEqual([0, 1]);
  expect(lane.isCrowded).toBe(false);
});

it('contract 02 §1.6: jobs start in the order they came, never two at a time', async () => {
  const action = fc.constantFrom('sync' as const, 'wait' as const, 'finish' as const);
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 120 }), async (actions) => {
      const { started, running, ...jobs } = bench();
      let pushed = 0;
      for (const action of actions) {
        if (action !== 'finish') pushed++;
        await jobs[action]();
        expect(running()).toBeLessThanOrEqual(1);
      }
      while (running() > 0) await jobs.finish();
      expect(started).toEqual(Array.from({ length: pushed }, (_, index) => index));
    }),
    { numRuns: 100 },
  );
});

it('contract 02 §1.6: crowded above 256 that wait, relieved below 64, once each', async () => {
  const events: string[] = [];
  const { lane, sync, wait, finish } = bench({
    crowded: () => void events.push('crowded'),
    relieved: () => void events.push('relieved'),
  });
  wait();
  for (let count = 0; count < 256; count++) wait();
  expect(events).toEqual([]);
  wait();
  sync();
  expect(events).toEqual(['crowded']);
  expect(lane.isCrowded).toBe(true);
  // 258 wait: the first to leave makes it 257, and so on down to 64.
  for (let count = 0; count < 194; count++) await finish();
  expect(events).toEqual(['crowded']);
  await finish();
  expect(events).toEqual(['crowded', 'relieved']);
  expect(lane.isCrowded).toBe(false);
});

it('contract 02 §1.6: a lane may be crowded again', async () => {
  const events: string[] = [];
  const { sync, wait, finish } = bench({
    crowded: () => void events.push('crowded'),
    relieved: () => void events.push('relieved'),
  });
  for (let round = 0; round < 3; round++) {
    wait();
    for (let count = 0; count < 300; count++) sync();
    await finish();
  }
  expect(events).toEqual(['crowded', 'relieved', 'crowded', 'relieved', 'crowded', 'relieved']);
});
