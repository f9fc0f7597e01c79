import { expect, it } from 'vitest';
import { create } from './limits.ts';

it('contract 01 §4: no number of other peers evicts a running block', async () => {
  const { clock, limiter, block } = await create();
  block('blocked');
  for (let count = 0; count < 10; count++) limiter.fail('blocked too', 'pairing');
  for (let index = 0; index < 30_000; index++) limiter.fail(`peer-${index}`, 'session');
  expect([limiter.blockedFor('blocked'), limiter.blockedFor('blocked too')]).toEqual([300, 120]);
  expect(limiter.clear()).toBe(10_000);
  block('blocked');
  clock.advance(299_000);
  for (let index = 0; index < 30_000; index++) limiter.mint(`peer-${index}`);
  expect(limiter.blockedFor('blocked')).toBe(1);
});

it('contract 01 §4: once 10,000 blocks run there is no room for others, until the first of them ends', async () => {
  const { clock, limiter, block } = await create();
  for (let index = 0; index < 10_000; index++) {
    block(`peer-${index}`);
    if (index === 0) clock.advance(100_000);
  }
  block('new');
  expect(limiter.blockedFor('new')).toBe(0);
  expect(limiter.mint('new')).toBe(60);
  expect(limiter.blockedFor('peer-0')).toBe(200);
  clock.advance(200_000);
  block('new');
  expect(limiter.blockedFor('new')).toBe(300);
  block('another');
  expect(limiter.blockedFor('another')).toBe(0);
  expect(limiter.clear()).toBe(10_000);
});

it('contract 01 §4: what is kept in the store is bounded likewise', async () => {
  const { clock, stores, limiter, block } = await create();
  for (let index = 0; index < 12_000; index++) {
    if (index % 3 === 0) block(`peer-${index}`);
    else limiter.fail(`peer-${index}`, 'pairing');
    if (index % 4_000 === 0) await clock.advanceAsync(1_000);
  }
  await clock.advanceAsync(1_000);
  // The peers, and one record each for the budget of codes.
  expect((await stores.open('limiter').getKeys()).length).toBeLessThanOrEqual(10_001);
});
