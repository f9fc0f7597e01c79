import { expect, it, vi } from 'vitest';
import { createWriteBehind, loadAll } from '../../../lib/kit/write-behind.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

function setup() {
  const store = memoryStores().open('phone-subscribers');
  const clock = createTestClock();
  const log = createTestLog();
  return { store, clock, log, behind: createWriteBehind({ store, clock, log, name: 'the test state' }) };
}

it('writes a key once a second at most, as it is then', async () => {
  const { store, clock, behind } = setup();
  const setItem = vi.spyOn(store, 'setItem');
  const sockets: string[] = [];
  for (let n = 0; n < 5; n++) {
    sockets.push(`${n}`);
    behind.save('order', () => ({ sockets }));
  }
  expect(setItem).not.toHaveBeenCalled();
  await clock.advanceAsync(1_000);
  expect(setItem).toHaveBeenCalledTimes(1);
  expect(await store.getItem('order')).toEqual({ sockets: ['0', '1', '2', '3', '4'] });
  expect(clock.pending).toBe(0);
  behind.save('order', () => null);
  await clock.advanceAsync(1_000);
  expect(await store.getKeys()).toEqual([]);
});

it('repeats a failed write with the next change, unless that was of the same key', async () => {
  const { store, clock, log, behind } = setup();
  const fail = vi.spyOn(store, 'setItem').mockRejectedValue(new Error('disk full'));
  behind.save('a', () => ({ sockets: ['old'] }));
  behind.save('b', () => ({ sockets: ['b'] }));
  await clock.advanceAsync(1_000);
  expect(log.lines.join()).toContain('the test state could not be saved: disk full');
  fail.mockRestore();
  behind.save('a', () => ({ sockets: ['new'] }));
  await clock.advanceAsync(1_000);
  expect(await store.getItem('a')).toEqual({ sockets: ['new'] });
  expect(await store.getItem('b')).toEqual({ sockets: ['b'] });
});

it('clears stored and pending values', async () => {
  const { store, clock, behind } = setup();
  behind.save('a', () => ({ sockets: [] }));
  await clock.advanceAsync(1_000);
  behind.save('b', () => ({ sockets: [] }));
  behind.clear();
  await clock.advanceAsync(1_000);
  expect(await store.getKeys()).toEqual([]);
});

it('loads readable records, and removes others with a warning', async () => {
  const { store, log } = setup();
  await store.setItem('good', { sockets: ['x'] });
  await store.setItem('bad', { sockets: [] });
  const read = (value: unknown) => ((value as { sockets: string[] }).sockets.length > 0 ? 'read' : undefined);
  expect(await loadAll(store, log, read)).toEqual([['good', 'read']]);
  expect(await store.getKeys()).toEqual(['good']);
  expect(log.lines.join()).toContain('removed a stored record that cannot be read');
});
