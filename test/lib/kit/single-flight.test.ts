import { describe, expect, it } from 'vitest';
import { createSingleFlight } from '../../../lib/kit/single-flight.ts';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('single flight', () => {
  it('shares one run among callers at the same time', async () => {
    const flight = createSingleFlight<string>();
    let begun = 0;
    const begin = async () => {
      begun++;
      await settle();
      return `outcome ${begun}`;
    };
    const both = [flight.join('a', begin), flight.join('a', begin)];
    expect(await Promise.all(both.map(({ outcome }) => outcome))).toEqual(['outcome 1', 'outcome 1']);
    expect(flight.size).toBe(0);
    expect(await flight.join('a', begin).outcome).toBe('outcome 2');
  });

  it('aborts when the last caller leaves, not before', async () => {
    const flight = createSingleFlight<string>();
    const ended: number[] = [];
    const begin = (name: number) => (signal: AbortSignal) =>
      new Promise<string>((_, reject) =>
        signal.addEventListener('abort', () => {
          ended.push(name);
          reject(signal.reason);
        }),
      );
    const first = flight.join('a', begin(1));
    const second = flight.join('a', begin(2));
    first.leave();
    first.leave();
    expect([ended, flight.size]).toEqual([[], 1]);
    second.leave();
    // Aborted work is not joined again.
    const third = flight.join('a', begin(3));
    await expect(second.outcome).rejects.toThrow();
    expect([ended, flight.size]).toEqual([[1], 1]);
    third.leave();
    expect([ended, flight.size]).toEqual([[1, 3], 0]);
  });

  it('shares a failure and does not remember it', async () => {
    const flight = createSingleFlight<string>();
    const fail = () => Promise.reject(new Error('no'));
    for (const { outcome } of [flight.join('a', fail), flight.join('a', fail)]) {
      await expect(outcome).rejects.toThrow('no');
    }
    expect(await flight.join('a', async () => 'yes').outcome).toBe('yes');
  });
});
