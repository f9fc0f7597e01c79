import { expect, it } from 'vitest';
import { createPacedQueue } from '../../../../lib/voice/agent/paced-queue.ts';

function setUp() {
  const passed: number[] = [];
  let isFull = false;
  const waiting = new Set<() => void>();
  const room = () => (isFull ? new Promise<void>((resolve) => waiting.add(resolve)) : undefined);
  const queue = createPacedQueue<number>(room, (item) => void passed.push(item));
  return {
    passed,
    queue,
    fill() {
      isFull = true;
    },
    async drain() {
      for (const resolve of waiting) resolve();
      waiting.clear();
      await Promise.resolve();
    },
  };
}

it('passes a single item on at once, and of many the first', async () => {
  const { passed, queue, fill, drain } = setUp();
  fill();
  queue.push([1]);
  queue.push([2, 3, 4]);
  expect(passed).toEqual([1, 2]);
  queue.push([5]);
  expect(passed).toEqual([1, 2]);
  await drain();
  expect(passed).toEqual([1, 2, 3]);
  queue.flush();
  expect(passed).toEqual([1, 2, 3, 4, 5]);
  queue.push([6]);
  await drain();
  expect(passed).toEqual([1, 2, 3, 4, 5, 6]);
});

it('keeps 65,536 items at most', () => {
  const { passed, queue, fill } = setUp();
  fill();
  queue.push([1, 2]);
  for (let item = 3; passed.length === 1; item++) queue.push([item]);
  expect(passed).toHaveLength(64 * 1024 + 2);
});

it('passes 65,536 items on in a moment', () => {
  const passed: object[] = [];
  const queue = createPacedQueue<object>(
    () => new Promise<void>(() => {}),
    (item) => void passed.push(item),
  );
  const items = Array.from({ length: 64 * 1024 }, (_, at) => ({ at }));
  queue.push(items);
  const before = process.cpuUsage();
  queue.flush();
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1000).toBeLessThan(150);
  expect(passed).toEqual(items);
});
