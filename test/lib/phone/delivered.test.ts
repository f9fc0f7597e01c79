import { expect, it } from 'vitest';
import { openDelivered } from '../../../lib/phone/delivered.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

it('12 §2: remembers the last 1,000 ids, also over a restart', async () => {
  const store = memoryStores().open('phone-delivered');
  const log = createTestLog();
  const first = await openDelivered(store, log);
  for (let n = 0; n < 1_002; n++) first.add(`m${n}`);
  first.add('m1001');
  await store.setItem('broken', { seq: 'x' } as never);
  for (const delivered of [first, await openDelivered(store, log)]) {
    expect(['m0', 'm1', 'm2', 'm1001', 'other'].map(delivered.has)).toEqual([false, false, true, true, false]);
  }
  const again = await openDelivered(store, log);
  again.add('one more');
  expect([again.has('m2'), again.has('m3'), (await store.getKeys()).length]).toEqual([false, true, 1_001]);
  expect(log.lines.join()).toContain('skipped a stored record that cannot be read');
});
