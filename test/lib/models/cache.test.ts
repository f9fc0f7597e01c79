import { describe, expect, it } from 'vitest';
import { createEffortCache, MAX_ROWS } from '../../../lib/models/cache.ts';
import type { ModelEfforts } from '../../../lib/models/efforts.ts';
import { createTestClock } from '../../support/clock.ts';

const row: ModelEfforts = { efforts: ['high'], exact: true, source: 'provider-catalog' };

describe('the cache of efforts (contract 07 §3)', () => {
  it('keeps a row for 300 s', () => {
    const clock = createTestClock();
    const cache = createEffortCache(clock);
    cache.set('p', cache.generation('p'), 'k', row);
    clock.advance(299_999);
    expect(cache.get('p', 'k')).toEqual(row);
    clock.advance(1);
    expect(cache.get('p', 'k')).toBeUndefined();
  });

  it('never shows a profile the row of another', () => {
    const cache = createEffortCache(createTestClock());
    cache.set('a', cache.generation('a'), 'k', row);
    expect(cache.get('b', 'k')).toBeUndefined();
    cache.refresh('b');
    expect(cache.get('a', 'k')).toEqual(row);
  });

  it('a refresh drops the rows, and rejects results of calls that began before it', () => {
    const cache = createEffortCache(createTestClock());
    const before = cache.generation('p');
    cache.set('p', before, 'k', row);
    const after = cache.refresh('p');
    expect(cache.get('p', 'k')).toBeUndefined();
    cache.set('p', before, 'k', row);
    expect(cache.get('p', 'k')).toBeUndefined();
    cache.set('p', after, 'k', row);
    expect(cache.get('p', 'k')).toEqual(row);
  });

  it('holds 4096 rows and evicts the oldest', () => {
    const cache = createEffortCache(createTestClock());
    const generation = cache.generation('p');
    for (let at = 0; at < MAX_ROWS; at++) cache.set('p', generation, `k${at}`, row);
    // Set again, so no longer the oldest.
    cache.set('p', generation, 'k0', row);
    cache.set('p', generation, 'more', row);
    expect(cache.size).toBe(4096);
    expect(cache.get('p', 'k0')).toEqual(row);
    expect(cache.get('p', 'k1')).toBeUndefined();
    expect(cache.get('p', 'k2')).toEqual(row);
  });

  it('a profile evicted among too many does not return to its old generation', () => {
    const cache = createEffortCache(createTestClock());
    const old = cache.generation('p');
    cache.set('p', old, 'k', row);
    for (let other = 0; other < 1024; other++) cache.generation(`other ${other}`);
    expect(cache.size).toBe(0);
    cache.set('p', old, 'k', row);
    expect(cache.get('p', 'k')).toBeUndefined();
    expect(cache.generation('p')).not.toBe(old);
  });
});
