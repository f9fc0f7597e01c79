import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SerialQueue } from '../../../lib/socket/serial-queue.ts';

const quiet = { backedUp: () => {}, drained: () => {} };

/** Jobs that finish on demand, and the order in which they started. */
function bench(signals = quiet) {
  const queue = new SerialQueue(signals);
  const started: number[] = [];
  const running: (() => void)[] = [];
  let next = 0;
  return {
    queue,
    started,
    sync() {
      const index = next++;
      queue.push(() => void started.push(index));
    },
    wait() {
      const index = next++;
      queue.push(() => {
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

it('contract 02 §1.6: a synchronous job runs at once', () => {
  const { started, sync } = bench();
  sync();
  sync();
  expect(started).toEqual([0, 1]);
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

it('contract 02 §1.6: backs up above 256 waiting jobs and drains below 64, signalling each once', async () => {
  const events: string[] = [];
  const { sync, wait, finish } = bench({
    backedUp: () => void events.push('backed up'),
    drained: () => void events.push('drained'),
  });
  wait();
  for (let count = 0; count < 256; count++) wait();
  expect(events).toEqual([]);
  wait();
  sync();
  expect(events).toEqual(['backed up']);
  // 258 wait: 194 may finish before fewer than 64 are left.
  for (let count = 0; count < 194; count++) await finish();
  expect(events).toEqual(['backed up']);
  await finish();
  expect(events).toEqual(['backed up', 'drained']);
});

it('contract 02 §1.6: a queue may back up again', async () => {
  const events: string[] = [];
  const { sync, wait, finish } = bench({
    backedUp: () => void events.push('backed up'),
    drained: () => void events.push('drained'),
  });
  for (let round = 0; round < 3; round++) {
    wait();
    for (let count = 0; count < 300; count++) sync();
    await finish();
  }
  expect(events).toEqual(['backed up', 'drained', 'backed up', 'drained', 'backed up', 'drained']);
});
