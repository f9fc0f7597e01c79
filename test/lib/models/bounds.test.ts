import { describe, expect, it } from 'vitest';
import type { Answer } from '../../../lib/models/answer.ts';
import { createAnswerCache, MAX_ROWS } from '../../../lib/models/cache.ts';
import { createTestClock } from '../../support/clock.ts';

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
