import { expect, it } from 'vitest';
import type { Bucket } from '../../../lib/access/limiter.ts';
import { createTestClock } from '../../support/clock.ts';
import { limiterOf, memoryStores } from '../../support/states.ts';

async function create() {
  const clock = createTestClock();
  return { clock, limiter: await limiterOf(clock) };
}

const BUCKETS: [Bucket, threshold: number, block: number][] = [
  ['pairing', 10, 120],
  ['session', 5, 300],
];

it.each(BUCKETS)('contract 01 §4: %s: the failure number %i blocks for %i s', async (bucket, threshold, block) => {
  const { clock, limiter } = await create();
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

it.each(BUCKETS)('contract 01 §4: %s: the window of 60 s slides', async (bucket, threshold) => {
  const { clock, limiter } = await create();
  limiter.fail('p', bucket);
  clock.advance(59_999);
  for (let count = 2; count < threshold; count++) limiter.fail('p', bucket);
  clock.advance(1);
  // The first one has just left the window.
  expect(limiter.fail('p', bucket)).toBe(false);
  expect(limiter.fail('p', bucket)).toBe(true);
});

it.each(BUCKETS)('contract 01 §4: %s: a slow trickle of failures never blocks', async (bucket, threshold) => {
  const { clock, limiter } = await create();
  for (let count = 0; count < 100; count++) {
    expect(limiter.fail('p', bucket)).toBe(false);
    clock.advance(Math.ceil(60_000 / (threshold - 1)));
  }
});

it.each(BUCKETS)(
  'contract 01 §4: %s: blocked attempts do not lengthen the block, and none is kept',
  async (bucket, threshold, block) => {
    const { clock, limiter } = await create();
    for (let count = 0; count < threshold; count++) limiter.fail('p', bucket);
    clock.advance((block - 1) * 1000);
    for (let count = 0; count < 50; count++) expect(limiter.fail('p', bucket)).toBe(false);
    expect(limiter.blockedFor('p')).toBe(1);
    clock.advance(1000);
    for (let count = 1; count < threshold; count++) expect(limiter.fail('p', bucket)).toBe(false);
    expect(limiter.fail('p', bucket)).toBe(true);
  },
);

it('contract 01 §4: the counts of the two buckets are independent', async () => {
  const { limiter } = await create();
  for (let count = 0; count < 9; count++) limiter.fail('p', 'pairing');
  for (let count = 0; count < 4; count++) limiter.fail('p', 'session');
  expect(limiter.blockedFor('p')).toBe(0);
  expect(limiter.fail('p', 'session')).toBe(true);
});

it('contract 01 §4: reaching a threshold empties that bucket only', async () => {
  const { clock, limiter } = await create();
  // A block outlasts the window of the other bucket's counts: they must be from near its end.
  for (let count = 0; count < 5; count++) limiter.fail('p', 'session');
  clock.advance(300_000);
  for (let count = 0; count < 4; count++) expect(limiter.fail('p', 'session')).toBe(false);
  expect(limiter.fail('p', 'session')).toBe(true);
});

it('contract 01 §4: a success clears the counts, not a running block', async () => {
  const { limiter } = await create();
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

it('contract 01 §4: five codes a minute, the sixth waits until the first has left the window', async () => {
  const { clock, limiter } = await create();
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

it('contract 01 §4: refused code requests do not count, nor does a success clear them', async () => {
  const { clock, limiter } = await create();
  for (let count = 0; count < 5; count++) limiter.mint('p');
  for (let count = 0; count < 50; count++) expect(limiter.mint('p')).toBeGreaterThan(0);
  limiter.succeed('p');
  expect(limiter.mint('p')).toBe(60);
  clock.advance(60_000);
  expect(limiter.mint('p')).toBe(0);
});

it('contract 01 §4: a host pairing clears everything of everybody', async () => {
  const { limiter } = await create();
  for (let count = 0; count < 5; count++) limiter.fail('a', 'session');
  for (let count = 0; count < 9; count++) limiter.fail('b', 'pairing');
  for (let count = 0; count < 5; count++) limiter.mint('c');
  expect(limiter.clear()).toBe(3);
  expect(limiter.blockedFor('a')).toBe(0);
  expect(limiter.fail('b', 'pairing')).toBe(false);
  expect(limiter.mint('c')).toBe(0);
  expect(limiter.clear()).toBe(2);
});

it('contract 01 §4: at most 10,000 peers are remembered, the one not seen for longest is forgotten', async () => {
  const { limiter } = await create();
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

it('contract 00: blocks and counts outlast a sleep, whatever the monotonic clock says after it', async () => {
  const stores = memoryStores();
  const before = createTestClock();
  before.advance(1_000_000);
  const limiter = await limiterOf(before, stores);
  for (let count = 0; count < 5; count++) limiter.fail('blocked', 'session');
  for (let count = 0; count < 9; count++) limiter.fail('2001:db8::/64', 'pairing');
  for (let count = 0; count < 5; count++) limiter.mint('minting');
  limiter.fail('forgiven', 'session');
  limiter.succeed('forgiven');
  await before.advanceAsync(20_000);

  const after = createTestClock(before.now());
  const woken = await limiterOf(after, stores);
  expect(woken.blockedFor('blocked')).toBe(280);
  expect(woken.mint('minting')).toBe(40);
  expect(woken.fail('2001:db8::/64', 'pairing')).toBe(true);
  for (let count = 0; count < 4; count++) expect(woken.fail('forgiven', 'session')).toBe(false);
  await after.advanceAsync(300_000);

  const later = await limiterOf(createTestClock(after.now()), stores);
  expect(later.blockedFor('blocked')).toBe(0);
  expect(later.clear()).toBe(0);
  expect(await stores.open('limiter').getKeys()).toEqual([]);
});

it('contract 00: a wall clock that was set back does not lengthen a block', async () => {
  const stores = memoryStores();
  const before = createTestClock();
  const limiter = await limiterOf(before, stores);
  for (let count = 0; count < 5; count++) limiter.fail('p', 'session');
  await before.advanceAsync(1_000);
  const woken = await limiterOf(createTestClock(before.now() - 3_600_000), stores);
  expect(woken.blockedFor('p')).toBe(300);
});

it('contract 01 §4: what a host pairing clears stays cleared over a sleep', async () => {
  const stores = memoryStores();
  const clock = createTestClock();
  const limiter = await limiterOf(clock, stores);
  for (let count = 0; count < 5; count++) limiter.fail('p', 'session');
  await clock.advanceAsync(1_000);
  for (let count = 0; count < 5; count++) limiter.fail('q', 'session');
  limiter.clear();
  await clock.advanceAsync(1_000);
  const woken = await limiterOf(clock, stores);
  expect([woken.blockedFor('p'), woken.blockedFor('q')]).toEqual([0, 0]);
});
