import { expect, it } from 'vitest';
import { createNotifications } from '../../../lib/notifications/ring.ts';

it('contract 02 §6: keeps the last hundred and gives the newest first', () => {
  const ring = createNotifications();
  for (let n = 1; n <= 105; n++) ring.post({ n });
  expect(ring.recent(3)).toEqual([{ n: 105 }, { n: 104 }, { n: 103 }]);
  const all = ring.recent(100);
  expect(all).toHaveLength(100);
  expect(all.at(-1)).toEqual({ n: 6 });
});

it('contract 02 §6: every member is kept as it is, extras too', () => {
  const ring = createNotifications();
  const posted = { package_name: 'a', title: null, posted_at: 5, extra: { deep: [1] } };
  ring.post(posted);
  expect(ring.recent(1)).toEqual([posted]);
});

it('contract 02 §6: long strings are cut', () => {
  const ring = createNotifications();
  expect(ring.post({ text: 'x'.repeat(5000), title: 'y'.repeat(4096), key: `${'z'.repeat(4095)}😀` })).toBe(true);
  const [entry] = ring.recent(1) as [{ text: string; title: string; key: string }];
  expect(entry.text).toBe('x'.repeat(4096));
  expect(entry.title).toHaveLength(4096);
  expect(entry.key.isWellFormed()).toBe(true);
});

it('contract 02 §6: an entry of more than 32 KiB is dropped', () => {
  const ring = createNotifications();
  const sized = (bytes: number) => ({ a: ['x'.repeat(bytes - '{"a":[""]}'.length)] });
  expect(ring.post(sized(32 * 1024 + 1))).toBe(false);
  expect(ring.post({ a: ['€'.repeat(11_000)] })).toBe(false);
  expect(ring.recent(100)).toEqual([]);
  expect(ring.post(sized(32 * 1024))).toBe(true);
  expect(ring.recent(100)).toHaveLength(1);
});
