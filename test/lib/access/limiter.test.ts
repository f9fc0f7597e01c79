import { describe, expect, it } from 'vitest';
import type { Bucket, Limiter } from '../../../lib/access/limiter.ts';
import { createTestClock } from '../../support/clock.ts';
import { limiterOf, memoryStores } from '../../support/states.ts';
import { create } from './limits.ts';

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

it('contract 01 §4: a pairing clears the counts, not a running block', async () => {
  const { limiter } = await create();
  for (let count = 0; count < 9; count++) limiter.fail('p', 'pairing');
  for (let count = 0; count < 4; count++) limiter.fail('p', 'session');
  limiter.succeed('p', 'code');
  expect(limiter.fail('p', 'pairing')).toBe(false);
  for (let count = 0; count < 4; count++) expect(limiter.fail('p', 'session')).toBe(false);
  expect(limiter.fail('p', 'session')).toBe(true);
  limiter.succeed('p', 'code');
  expect(limiter.blockedFor('p')).toBe(300);
  limiter.succeed('never seen', 'token');
});

it('contract 01 §4: a token forgives failed tokens only, so that a paired device cannot guess codes without end', async () => {
  const { limiter } = await create();
  for (let count = 1; count < 10; count++) {
    expect(limiter.fail('p', 'pairing')).toBe(false);
    limiter.fail('p', 'session');
    limiter.succeed('p', 'token');
  }
  expect(limiter.blockedFor('p')).toBe(0);
  expect(limiter.fail('p', 'pairing')).toBe(true);
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
  limiter.succeed('p', 'code');
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

it('contract 01 §4: at most 10,000 peers are remembered, the least recently used is forgotten', async () => {
  const { limiter } = await create();
  for (let count = 0; count < 4; count++) limiter.fail('old', 'session');
  for (let count = 0; count < 4; count++) limiter.fail('kept', 'session');
  for (let index = 0; index < 9_998; index++) limiter.fail(`peer-${index}`, 'session');
  limiter.mint('kept');
  limiter.fail('one more', 'session');
  expect(limiter.fail('kept', 'session')).toBe(true);
  expect(limiter.fail('old', 'session')).toBe(false);
  // The blocked peer has requested a code too, which takes a second place.
  expect(limiter.clear()).toBe(9_999);
});

describe('wrong codes over all peers together (contract 01 §4)', () => {
  /** Wrong codes, each from a peer of its own. */
  const guess = (limiter: Limiter, times: number, from = 0) => {
    for (let index = 0; index < times; index++) limiter.fail(`2001:db8:${from + index}::/64`, 'pairing');
  };

  it('60 in a minute are borne, one more restricts codes for ten minutes, with one warning', async () => {
    const { clock, limiter, warnings } = await create();
    limiter.succeed('paired', 'code');
    guess(limiter, 60);
    expect([limiter.codesFor('paired'), limiter.codesFor('stranger')]).toEqual(['all', 'all']);
    guess(limiter, 1, 60);
    expect([limiter.codesFor('paired'), limiter.codesFor('stranger')]).toEqual(['registered', 'none']);
    guess(limiter, 500, 100);
    expect(warnings()).toEqual([expect.stringMatching(/more than 60 wrong pairing codes/)]);
    clock.advance(599_999);
    expect(limiter.codesFor('stranger')).toBe('none');
    clock.advance(1);
    expect(limiter.codesFor('stranger')).toBe('all');
    guess(limiter, 60);
    expect(limiter.codesFor('stranger')).toBe('all');
    guess(limiter, 1);
    expect(limiter.codesFor('stranger')).toBe('none');
    expect(warnings()).toHaveLength(2);
  });

  it('the window slides, and failed tokens do not count', async () => {
    const { clock, limiter } = await create();
    for (let minute = 0; minute < 20; minute++) {
      guess(limiter, 30, minute * 100);
      for (let index = 0; index < 100; index++) limiter.fail(`peer-${index}`, 'session');
      clock.advance(30_000);
    }
    expect(limiter.codesFor('stranger')).toBe('all');
  });

  it('codes that a blocked peer had on their way count too', async () => {
    const { limiter } = await create();
    for (let index = 0; index < 61; index++) limiter.fail('p', 'pairing');
    expect(limiter.codesFor('p')).toBe('none');
  });

  it('a host registration ends it; who has paired is still known', async () => {
    const { limiter } = await create();
    limiter.succeed('paired', 'code');
    guess(limiter, 61);
    limiter.clear();
    expect(limiter.codesFor('stranger')).toBe('all');
    guess(limiter, 60);
    expect(limiter.codesFor('stranger')).toBe('all');
    guess(limiter, 1);
    expect([limiter.codesFor('paired'), limiter.codesFor('stranger')]).toEqual(['registered', 'none']);
  });

  it('the last thousand peers that have paired are known', async () => {
    const { limiter } = await create();
    for (let index = 0; index < 1_001; index++) {
      limiter.succeed(`peer-${index}`, 'code');
      limiter.succeed('again and again', 'code');
    }
    guess(limiter, 61);
    expect(limiter.codesFor('again and again')).toBe('registered');
    expect(limiter.codesFor('peer-1000')).toBe('registered');
    expect(limiter.codesFor('peer-0')).toBe('none');
  });

  it('all state outlasts a sleep, even one right after a host registration (contract 00)', async () => {
    const { clock, stores, limiter } = await create();
    limiter.succeed('paired', 'code');
    guess(limiter, 40);
    limiter.clear();
    guess(limiter, 60);
    await clock.advanceAsync(20_000);
    const woken = createTestClock(clock.now());
    const second = await limiterOf(woken, stores);
    expect(second.codesFor('stranger')).toBe('all');
    guess(second, 1);
    expect([second.codesFor('paired'), second.codesFor('stranger')]).toEqual(['registered', 'none']);
    await woken.advanceAsync(300_000);
    const again = createTestClock(woken.now());
    const third = await limiterOf(again, stores);
    expect([third.codesFor('paired'), third.codesFor('stranger')]).toEqual(['registered', 'none']);
    again.advance(300_000);
    expect(third.codesFor('stranger')).toBe('all');
  });
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
  limiter.succeed('forgiven', 'token');
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
  expect(await stores.open('limiter').getKeys()).toEqual(['code-budget']);
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

describe('pages of foreign origins (contract 01 §1.4)', () => {
  const page = (index: number | string) => `192.0.2.1 origin https://${index}.example`;

  it('lock out neither their address nor each other', async () => {
    const { limiter, block } = await create();
    block(page('evil'));
    expect(limiter.blockedFor(page('evil'))).toBe(300);
    for (const other of ['192.0.2.1', page('good'), '192.0.2.2 origin https://evil.example']) {
      expect([other, limiter.blockedFor(other)]).toEqual([other, 0]);
    }
    for (let count = 0; count < 5; count++) limiter.mint(page('evil'));
    expect(limiter.mint(page('evil'))).toBe(60);
    expect([limiter.mint('192.0.2.1'), limiter.mint(page('good'))]).toEqual([0, 0]);
  });

  it('are refused while their address is blocked: an Origin never lifts a block', async () => {
    const { clock, limiter, block } = await create();
    block('192.0.2.1');
    expect(limiter.blockedFor(page('any'))).toBe(300);
    clock.advance(300_000);
    expect(limiter.blockedFor(page('any'))).toBe(0);
  });

  it.each(BUCKETS)(
    'have three times the %s limit together, whatever a client calls itself',
    async (bucket, threshold) => {
      const { limiter } = await create();
      for (let index = 1; index < 3 * threshold; index++) expect(limiter.fail(page(index), bucket)).toBe(false);
      expect(limiter.blockedFor(page('new'))).toBe(0);
      expect(limiter.fail(page('last'), bucket)).toBe(true);
      expect(limiter.blockedFor(page('new'))).toBeGreaterThan(0);
      expect(limiter.blockedFor('192.0.2.1')).toBe(0);
    },
  );

  it('have three times the code requests together', async () => {
    const { clock, limiter } = await create();
    for (let index = 0; index < 15; index++) expect(limiter.mint(page(index))).toBe(0);
    expect(limiter.mint(page('new'))).toBe(60);
    expect(limiter.mint('192.0.2.1')).toBe(0);
    clock.advance(60_000);
    expect(limiter.mint(page('new'))).toBe(0);
  });

  it('stay blocked over a sleep', async () => {
    const { clock, stores, limiter } = await create();
    for (let index = 0; index < 15; index++) limiter.fail(page(index), 'session');
    await clock.advanceAsync(1000);
    const woken = await limiterOf(clock, stores);
    expect(woken.blockedFor(page('new'))).toBe(299);
    expect(woken.blockedFor('192.0.2.1')).toBe(0);
  });
});
