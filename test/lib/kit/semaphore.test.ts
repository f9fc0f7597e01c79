import { describe, expect, it } from 'vitest';
import { RelayError } from '../../../lib/errors.ts';
import { createAdmission, createSemaphore, mapLimit } from '../../../lib/kit/semaphore.ts';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('semaphore', () => {
  const never = new AbortController().signal;

  it('runs as many as it has permits, in the order they came', async () => {
    const semaphore = createSemaphore(2, 10);
    const started: number[] = [];
    const ends: (() => void)[] = [];
    const run = (name: number) =>
      semaphore.run(never, () => {
        started.push(name);
        return new Promise<void>((resolve) => ends.push(resolve));
      });
    const all = [1, 2, 3, 4].map(run);
    await settle();
    expect([started, semaphore.running, semaphore.waiting]).toEqual([[1, 2], 2, 2]);
    ends[1]?.();
    await settle();
    expect(started).toEqual([1, 2, 3]);
    for (const end of ends) end();
    await settle();
    ends[3]?.();
    await Promise.all(all);
    expect([started, semaphore.running, semaphore.waiting]).toEqual([[1, 2, 3, 4], 0, 0]);
  });

  it('a failure releases its permit, an abort its place in the line', async () => {
    const semaphore = createSemaphore(1, 10);
    const end = new AbortController();
    let fail: (error: Error) => void = () => {};
    const first = semaphore.run(never, () => new Promise<void>((_, reject) => (fail = reject)));
    const aborted = semaphore.run(end.signal, async () => 'ran');
    const last = semaphore.run(never, async () => 'last');
    end.abort();
    await expect(aborted).rejects.toThrow();
    expect(semaphore.waiting).toBe(1);
    fail(new Error('no'));
    await expect(first).rejects.toThrow('no');
    expect(await last).toBe('last');
    await expect(semaphore.run(end.signal, async () => 'ran')).rejects.toThrow();
    expect([semaphore.running, semaphore.waiting]).toEqual([0, 0]);
  });

  it('passes the permit on when a turn and an abort coincide', async () => {
    const semaphore = createSemaphore(1, 10);
    const end = new AbortController();
    let finish = () => {};
    const first = semaphore.run(never, () => new Promise<void>((resolve) => (finish = resolve)));
    const second = semaphore.run(end.signal, async () => 'second');
    const third = semaphore.run(never, async () => 'third');
    await settle();
    finish();
    await first;
    end.abort();
    await second.catch(() => {});
    expect(await third).toBe('third');
    expect(semaphore.running).toBe(0);
  });

  it('refuses callers beyond the waiting limit', async () => {
    const semaphore = createSemaphore(1, 1);
    let finish = () => {};
    const first = semaphore.run(never, () => new Promise<void>((resolve) => (finish = resolve)));
    const second = semaphore.run(never, async () => 'second');
    await expect(semaphore.run(never, async () => 'third')).rejects.toThrow('too many calls are waiting');
    await settle();
    finish();
    await first;
    expect(await second).toBe('second');
  });
});

describe('admission', () => {
  const limits = { perOwner: 1, total: 2, message: 'too much at a time', retryAfter: 3 };

  it('refuses work over the limit of one owner, and of all', async () => {
    const admit = createAdmission(limits);
    const ends: (() => void)[] = [];
    const work = () => new Promise<void>((resolve) => ends.push(resolve));
    const refused = { kind: 'rate-limited', message: 'too much at a time', retryAfter: 3 };
    const first = admit('a', work);
    await expect(admit('a', work)).rejects.toMatchObject(refused);
    const second = admit('b', work);
    await expect(admit('c', work)).rejects.toBeInstanceOf(RelayError);
    ends[0]?.();
    await first;
    expect(await admit('c', async () => 'ran')).toBe('ran');
    ends[1]?.();
    await second;
  });

  it('a failure makes room too', async () => {
    const admit = createAdmission(limits);
    await expect(admit('a', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await admit('a', async () => 'ran')).toBe('ran');
  });
});

describe('mapLimit', () => {
  it('keeps the order of its items and never runs more than the limit', async () => {
    let running = 0;
    let highest = 0;
    const double = async (item: number) => {
      highest = Math.max(highest, ++running);
      await settle();
      running--;
      return item * 2;
    };
    expect(await mapLimit(2, [1, 2, 3, 4, 5], double)).toEqual([2, 4, 6, 8, 10]);
    expect(highest).toBe(2);
  });

  it('starts nothing more after a failure', async () => {
    const started: number[] = [];
    const run = async (item: number) => {
      started.push(item);
      await settle();
      throw new Error('no');
    };
    await expect(mapLimit(2, [1, 2, 3, 4], run)).rejects.toThrow('no');
    await settle();
    expect(started).toEqual([1, 2]);
  });
});
