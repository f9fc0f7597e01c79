import { describe, expect, it } from 'vitest';
import type { Answer } from '../../../lib/models/answer.ts';
import { createAnswerCache, MAX_ROWS } from '../../../lib/models/cache.ts';
import { createFlights } from '../../../lib/models/flights.ts';
import { createSlots } from '../../../lib/models/slots.ts';
import { createTestClock } from '../../support/clock.ts';
import { settle } from './support.ts';

const answer: Answer = { efforts: ['high'], exact: true, source: 'provider-catalog' };

describe('the memory of answers (contract 07 §3)', () => {
  it('keeps a row for 300 s', () => {
    const clock = createTestClock();
    const cache = createAnswerCache(clock);
    cache.set('p', cache.generation('p'), 'k', answer);
    clock.advance(299_999);
    expect(cache.get('p', 'k')).toEqual(answer);
    clock.advance(1);
    expect(cache.get('p', 'k')).toBeUndefined();
  });

  it('no profile sees the row of another', () => {
    const cache = createAnswerCache(createTestClock());
    cache.set('a', cache.generation('a'), 'k', answer);
    expect(cache.get('b', 'k')).toBeUndefined();
    cache.refresh('b');
    expect(cache.get('a', 'k')).toEqual(answer);
  });

  it('a refresh drops the rows, and what was asked before it is not kept', () => {
    const cache = createAnswerCache(createTestClock());
    const before = cache.generation('p');
    cache.set('p', before, 'k', answer);
    const after = cache.refresh('p');
    expect(cache.get('p', 'k')).toBeUndefined();
    cache.set('p', before, 'k', answer);
    expect(cache.get('p', 'k')).toBeUndefined();
    cache.set('p', after, 'k', answer);
    expect(cache.get('p', 'k')).toEqual(answer);
  });

  it('holds 4096 rows: the oldest goes first', () => {
    const cache = createAnswerCache(createTestClock());
    const generation = cache.generation('p');
    for (let row = 0; row < MAX_ROWS; row++) cache.set('p', generation, `k${row}`, answer);
    // Kept anew: no longer the oldest.
    cache.set('p', generation, 'k0', answer);
    cache.set('p', generation, 'more', answer);
    expect(cache.size).toBe(4096);
    expect(cache.get('p', 'k0')).toEqual(answer);
    expect(cache.get('p', 'k1')).toBeUndefined();
    expect(cache.get('p', 'k2')).toEqual(answer);
  });

  it('a profile that was forgotten among too many does not come back to its old generation', () => {
    const cache = createAnswerCache(createTestClock());
    const old = cache.generation('p');
    cache.set('p', old, 'k', answer);
    for (let other = 0; other < 1024; other++) cache.generation(`other ${other}`);
    expect(cache.size).toBe(0);
    cache.set('p', old, 'k', answer);
    expect(cache.get('p', 'k')).toBeUndefined();
    expect(cache.generation('p')).not.toBe(old);
  });
});

describe('slots', () => {
  const never = new AbortController().signal;

  it('so many run at once, in the order they came', async () => {
    const slots = createSlots(2, 10);
    const started: number[] = [];
    const ends: (() => void)[] = [];
    const run = (name: number) =>
      slots.run(never, () => {
        started.push(name);
        return new Promise<void>((resolve) => ends.push(resolve));
      });
    const all = [1, 2, 3, 4].map(run);
    await settle();
    expect([started, slots.running, slots.waiting]).toEqual([[1, 2], 2, 2]);
    ends[1]?.();
    await settle();
    expect(started).toEqual([1, 2, 3]);
    for (const end of ends) end();
    await settle();
    ends[3]?.();
    await Promise.all(all);
    expect([started, slots.running, slots.waiting]).toEqual([[1, 2, 3, 4], 0, 0]);
  });

  it('a failure gives its slot back, an abort its place in the line', async () => {
    const slots = createSlots(1, 10);
    const end = new AbortController();
    let fail: (error: Error) => void = () => {};
    const first = slots.run(never, () => new Promise<void>((_, reject) => (fail = reject)));
    const given_up = slots.run(end.signal, async () => 'ran');
    const last = slots.run(never, async () => 'last');
    end.abort();
    await expect(given_up).rejects.toThrow();
    expect(slots.waiting).toBe(1);
    fail(new Error('no'));
    await expect(first).rejects.toThrow('no');
    expect(await last).toBe('last');
    await expect(slots.run(end.signal, async () => 'ran')).rejects.toThrow();
    expect([slots.running, slots.waiting]).toEqual([0, 0]);
  });

  it('whose turn and end come together gives the slot on', async () => {
    const slots = createSlots(1, 10);
    const end = new AbortController();
    let finish = () => {};
    const first = slots.run(never, () => new Promise<void>((resolve) => (finish = resolve)));
    const second = slots.run(end.signal, async () => 'second');
    const third = slots.run(never, async () => 'third');
    await settle();
    finish();
    await first;
    end.abort();
    await second.catch(() => {});
    expect(await third).toBe('third');
    expect(slots.running).toBe(0);
  });

  it('only so many may wait', async () => {
    const slots = createSlots(1, 1);
    let finish = () => {};
    const first = slots.run(never, () => new Promise<void>((resolve) => (finish = resolve)));
    const second = slots.run(never, async () => 'second');
    await expect(slots.run(never, async () => 'third')).rejects.toThrow('too many calls are waiting');
    await settle();
    finish();
    await first;
    expect(await second).toBe('second');
  });
});

describe('flights', () => {
  it('who wants the same at the same time gets the same', async () => {
    const flights = createFlights<string>();
    let begun = 0;
    const begin = async () => {
      begun++;
      await settle();
      return `outcome ${begun}`;
    };
    const both = [flights.join('a', begin), flights.join('a', begin)];
    expect(await Promise.all(both.map(({ outcome }) => outcome))).toEqual(['outcome 1', 'outcome 1']);
    expect(flights.size).toBe(0);
    expect(await flights.join('a', begin).outcome).toBe('outcome 2');
  });

  it('one who leaves does not end it for the others; the last one does', async () => {
    const flights = createFlights<string>();
    const ended: number[] = [];
    const begin = (name: number) => (signal: AbortSignal) =>
      new Promise<string>((_, reject) =>
        signal.addEventListener('abort', () => {
          ended.push(name);
          reject(signal.reason);
        }),
      );
    const first = flights.join('a', begin(1));
    const second = flights.join('a', begin(2));
    first.leave();
    first.leave();
    expect([ended, flights.size]).toEqual([[], 1]);
    second.leave();
    // What has been given up is not joined again.
    const third = flights.join('a', begin(3));
    await expect(second.outcome).rejects.toThrow();
    expect([ended, flights.size]).toEqual([[1], 1]);
    third.leave();
    expect([ended, flights.size]).toEqual([[1, 3], 0]);
  });

  it('a failure is everybody’s, and not remembered', async () => {
    const flights = createFlights<string>();
    const fail = () => Promise.reject(new Error('no'));
    for (const { outcome } of [flights.join('a', fail), flights.join('a', fail)]) {
      await expect(outcome).rejects.toThrow('no');
    }
    expect(await flights.join('a', async () => 'yes').outcome).toBe('yes');
  });
});
