import { expect, it } from 'vitest';
import { type Bucket, createLimiter } from '../../../lib/access/limiter.ts';
import { createTestClock } from '../../support/clock.ts';

function create() {
  const clock = createTestClock();
  return { clock, limiter: createLimiter(clock) };
}

const BUCKETS: [Bucket, threshold: number, block: number][] = [
  ['pairing', 10, 120],
  ['session', 5, 300],
];

it.each(BUCKETS)('contract 01 §4: %s: the failure number %i blocks for %i s', (bucket, threshold, block) => {
  const { clock, limiter } = create();
  for (let count = 1; count < threshold; count++) expect(limiter.fail('p', bucket)).toBe(false);
  expect(limiter.blockedFor('p')).toBe(0);
  expect(limiter.fail('p', bucket)).toBe(true);
  expect(limiter.blockedFor('p')).toBe(block);
  expect(limiter.blockedFor('other')).toBe(0);
  clock.advance(1);
  expect(limiter.blockedFor('p')).toBe(block);
  clock.advance((block - 1) * 1000);
  expect(limiter.blockedFor('p')).toBe(1);
  clock.advance(999);
  expect(limiter.blockedFor('p')).toBe(0);
});

it.each(BUCKETS)('contract 01 §4: %s: the window of 60 s slides', (bucket, threshold) => {
  const { clock, limiter } = create();
  limiter.fail('p', bucket);
  clock.advance(59_999);
  for (let count = 2; count < threshold; count++) limiter.fail('p', bucket);
  clock.advance(1);
  // The first one has just left the window.
  expect(limiter.fail('p', bucket)).toBe(false);
  expect(limiter.fail('p', bucket)).toBe(true);
});

it.each(BUCKETS)('contract 01 §4: %s: a slow trickle of failures never blocks', (bucket, threshold) => {
  const { clock, limiter } = create();
  for (let count = 0; count < 100; count++) {
    expect(limiter.fail('p', bucket)).toBe(false);
    clock.advance(Math.ceil(60_000 / (threshold - 1)));
  }
});

it.each(BUCKETS)(
  'contract 01 §4: %s: blocked attempts do not lengthen the block, and none is kept',
  (bucket, threshold, block) => {
    const { clock, limiter } = create();
    for (let count = 0; count < threshold; count++) limiter.fail('p', bucket);
    clock.advance((block - 1) * 1000);
    for (let count = 0; count < 50; count++) expect(limiter.fail('p', bucket)).toBe(false);
    expect(limiter.blockedFor('p')).toBe(1);
    clock.advance(1000);
    for (let count = 1; count < threshold; count++) expect(limiter.fail('p', bucket)).toBe(false);
    expect(limiter.fail('p', bucket)).toBe(true);
  },
);

it('contract 01 §4: the counts of the two buckets are independent', () => {
  const { limiter } = create();
  for (let count = 0; count < 9; count++) limiter.fail('p', 'pairing');
  for (let count = 0; count < 4; count++) limiter.fail('p', 'session');
  expect(limiter.blockedFor('p')).toBe(0);
  expect(limiter.fail('p', 'session')).toBe(true);
});

it('contract 01 §4: reaching a threshold empties that bucket only', () => {
  const { clock, limiter } = create();
  // A block outlasts the window of the other bucket's counts: they must be from near its end.
  for (let count = 0; count < 5; count++) limiter.fail('p', 'session');
  clock.advance(300_000);
  for (let count = 0; count < 4; count++) expect(limiter.fail('p', 'session')).toBe(false);
  expect(limiter.fail('p', 'session')).toBe(true);
});

it('contract 01 §4: a success clears the counts, not a running block', () => {
  const { limiter } = create();
  for (let count = 0; count < 9; count++) limiter.fail('p', 'pairing');
  for (let count = 0; count < 4; count++) limiter.fail('p', 'session');
  limiter.succeed('p');
  expect(limiter.fail('p', 'pairing')).toBe(false);
  for (let count = 0; count < 4; count++) expect(limiter.fail('p', 'session')).toBe(false);
  expect(limiter.fail('p', 'session')).toBe(true);
  limiter.succeed('p');
  expect(limiter.blockedFor('p')).toBe(300);
  limiter.succeed('never seen');
});

it('contract 01 §4: five codes a minute, the sixth waits until the first has left the window', () => {
  const { clock, limiter } = create();
  for (let count = 0; count < 5; count++) {
    expect(limiter.mint('p')).toBe(0);
    clock.advance(10_000);
  }
  expect(limiter.mint('p')).toBe(10);
  expect(limiter.mint('other')).toBe(0);
  clock.advance(9_999);
  expect(limiter.mint('p')).toBe(1);
  clock.advance(1);
  expect(limiter.mint('p')).toBe(0);
  expect(limiter.mint('p')).toBe(10);
});

it('contract 01 §4: refused code requests do not count, nor does a success clear them', () => {
  const { clock, limiter } = create();
  for (let count = 0; count < 5; count++) limiter.mint('p');
  for (let count = 0; count < 50; count++) expect(limiter.mint('p')).toBeGreaterThan(0);
  limiter.succeed('p');
  expect(limiter.mint('p')).toBe(60);
  clock.advance(60_000);
  expect(limiter.mint('p')).toBe(0);
});

it('contract 01 §4: a host pairing clears everything of everybody', () => {
  const { limiter } = create();
  for (let count = 0; count < 5; count++) limiter.fail('a', 'session');
  for (let count = 0; count < 9; count++) limiter.fail('b', 'pairing');
  for (let count = 0; count < 5; count++) limiter.mint('c');
  expect(limiter.clear()).toBe(3);
  expect(limiter.blockedFor('a')).toBe(0);
  expect(limiter.fail('b', 'pairing')).toBe(false);
  expect(limiter.mint('c')).toBe(0);
  expect(limiter.clear()).toBe(2);
});

it('contract 01 §4: at most 10,000 peers are remembered, the one not seen for longest is forgotten', () => {
  const { limiter } = create();
  for (let count = 0; count < 5; count++) limiter.fail('old', 'session');
  for (let count = 0; count < 4; count++) limiter.fail('kept', 'session');
  for (let index = 0; index < 9_998; index++) limiter.fail(`peer-${index}`, 'session');
  expect(limiter.blockedFor('old')).toBe(300);
  limiter.mint('kept');
  limiter.fail('one more', 'session');
  expect(limiter.blockedFor('old')).toBe(0);
  expect(limiter.fail('kept', 'session')).toBe(true);
  expect(limiter.clear()).toBe(10_000);
});
