import { expect, it, vi } from 'vitest';
import { nextTurn } from '../../../lib/kit/clock.ts';
import { loadAll } from '../../../lib/kit/entries.ts';
import { createWriteBehind } from '../../../lib/kit/write-behind.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

function setup() {
  const store = memoryStores().open('phone-subscribers');
  const log = createTestLog();
  return { store, log, behind: createWriteBehind({ store, log, name: 'the test state' }) };
}

it('writes a key once in a turn, as it is at its end', async () => {
  const { store, behind } = setup();
  const setItem = vi.spyOn(store, 'setItem');
  const sockets: string[] = [];
  for (let n = 0; n < 5; n++) {
    sockets.push(`${n}`);
    behind.save('order', () => ({ sockets }));
  }
  expect(setItem).not.toHaveBeenCalled();
  await nextTurn();
  expect(setItem).toHaveBeenCalledTimes(1);
  expect(await store.getItem('order')).toEqual({ sockets: ['0', '1', '2', '3', '4'] });
  behind.save('order', () => null);
  await nextTurn();
  expect(await store.getKeys()).toEqual([]);
});

it('repeats a failed write with the next change, unless that was of the same key', async () => {
  const { store, log, behind } = setup();
  const fail = vi.spyOn(store, 'setItem').mockRejectedValue(new Error('disk full'));
  behind.save('a', () => ({ sockets: ['old'] }));
  behind.save('b', () => ({ sockets: ['b'] }));
  await nextTurn();
  expect(log.lines.join()).toContain('the test state could not be saved: disk full');
  fail.mockRestore();
  behind.save('a', () => ({ sockets: ['new'] }));
  await nextTurn();
  expect(await store.getItem('a')).toEqual({ sockets: ['new'] });
  expect(await store.getItem('b')).toEqual({ sockets: ['b'] });
});

it('clears stored and pending values', async () => {
  const { store, behind } = setup();
  behind.save('a', () => ({ sockets: [] }));
  await nextTurn();
  behind.save('b', () => ({ sockets: [] }));
  behind.clear();
  await nextTurn();
  expect(await store.getKeys()).toEqual([]);
});

it('loads readable records, and removes others with a warning', async () => {
  const { store, log } = setup();
  await store.setItem('good', { sockets: ['x'] });
  await store.setItem('bad', { sockets: [] });
  const read = (value: unknown) => ((value as { sockets: string[] }).sockets.length > 0 ? 'read' : undefined);
  expect(await loadAll({ store, log, read })).toEqual([['good', 'read']]);
  expect(await store.getKeys()).toEqual(['good']);
  expect(log.lines.join()).toContain('removed a stored record that cannot be read');
});
