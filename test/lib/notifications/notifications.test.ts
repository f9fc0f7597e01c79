import { expect, it } from 'vitest';
import { nextTurn } from '../../../lib/kit/clock.ts';
import { openNotifications } from '../../../lib/notifications/notifications.ts';
import { memoryStores, noLog } from '../../support/states.ts';

const open = (stores = memoryStores()) => openNotifications({ store: stores.open('notifications'), log: noLog });

it('contract 02 §6: keeps the last 100 and returns the newest first', async () => {
  const ring = await open();
  for (let n = 1; n <= 105; n++) ring.post({ n });
  expect(ring.recent(3)).toEqual([{ n: 105 }, { n: 104 }, { n: 103 }]);
  const all = ring.recent(100);
  expect(all).toHaveLength(100);
  expect(all.at(-1)).toEqual({ n: 6 });
});

it('contract 02 §6: keeps every member unchanged, unknown ones too', async () => {
  const ring = await open();
  const posted = { package_name: 'a', title: null, posted_at: 5, extra: { deep: [1] } };
  ring.post(posted);
  expect(ring.recent(1)).toEqual([posted]);
});

it('contract 02 §6: cuts long strings', async () => {
  const ring = await open();
  expect(ring.post({ text: 'x'.repeat(5000), title: 'y'.repeat(4096), key: `${'z'.repeat(4095)}😀` })).toBe(true);
  const [entry] = ring.recent(1) as [{ text: string; title: string; key: string }];
  expect(entry.text).toBe('x'.repeat(4096));
  expect(entry.title).toHaveLength(4096);
  expect(entry.key.isWellFormed()).toBe(true);
});

it('contract 02 §6: drops an entry of more than 32 KiB', async () => {
  const ring = await open();
  const sized = (bytes: number) => ({ a: ['x'.repeat(bytes - '{"a":[""]}'.length)] });
  expect(ring.post(sized(32 * 1024 + 1))).toBe(false);
  expect(ring.post({ a: ['€'.repeat(11_000)] })).toBe(false);
  expect(ring.recent(100)).toEqual([]);
  expect(ring.post(sized(32 * 1024))).toBe(true);
  expect(ring.recent(100)).toHaveLength(1);
});

it('contract 00: the ring survives a sleep in order, with every member name', async () => {
  const stores = memoryStores();
  const ring = await open(stores);
  for (let n = 1; n <= 105; n++) ring.post({ n });
  const odd = JSON.parse('{"__proto__":{"a":1},"constructor":"x"}');
  ring.post(odd);
  await nextTurn();
  const woken = await open(stores);
  expect(JSON.stringify(woken.recent(1)[0])).toBe(JSON.stringify(odd));
  expect(woken.recent(100)).toEqual(ring.recent(100));
  woken.post({ n: 107 });
  expect(woken.recent(2).map(({ n }) => n)).toEqual([107, undefined]);
  expect(await stores.open('notifications').getKeys()).toHaveLength(100);
});
