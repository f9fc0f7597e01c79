import { describe, expect, it, vi } from 'vitest';
import { type NewEntry, openMediaIndex } from '../../../lib/media/media-index.ts';
import { createTestClock } from '../../support/clock.ts';
import { memoryStores, noLog } from '../../support/states.ts';

async function setup({
  cap = 500,
  ownedCap = 1000,
  ttl = 100,
  stores = memoryStores(),
  clock = createTestClock(),
} = {}) {
  const store = stores.open('media');
  const removed: string[] = [];
  const stuck = new Set<string>();
  const index = await openMediaIndex({
    store,
    log: noLog,
    clock,
    ttl,
    cap,
    ownedCap,
    async remove(place) {
      if (stuck.has(place)) throw new Error('busy');
      removed.push(place);
    },
  });
  const add = (place: string, more: Partial<NewEntry> = {}) =>
    index.add({ place, contentType: 'a/b', fileName: null, size: 10, sensitive: false, owned: false, ...more }).entry;
  return { clock, stores, store, removed, stuck, index, add };
}

describe('the media index (contract 04 §3.1)', () => {
  it('every registration gets its own token of 22 characters, even for the same file', async () => {
    const { add, index } = await setup();
    const tokens = Array.from({ length: 100 }, () => add('/a').token);
    expect(new Set(tokens).size).toBe(100);
    for (const token of tokens) expect(token).toMatch(/^[A-Za-z0-9_-]{22}$/);
    expect(index.count()).toBe(100);
  });

  it('what came from the edge takes the place of the same upload only, never that of other content', async () => {
    const { index, removed, add } = await setup();
    const adopt = (token: string, place: string, sha256?: string) => {
      const at = { createdAt: 0, lastAccessed: 0, expiresAt: Number.MAX_SAFE_INTEGER };
      const facts = {
        contentType: 'a/b',
        fileName: null,
        size: 10,
        sensitive: false,
        owned: true,
        kept: true as const,
      };
      return index.adopt({ token, place, sha256, ...facts, ...at });
    };
    const upload = add('/upload', { owned: true, token: 'u'.repeat(22), sha256: 'one' });
    const file = add('/file');
    await index.markSensitive(upload.token);
    expect([adopt(upload.token, '/forged', 'two'), adopt(file.token, '/forged'), removed]).toEqual([false, false, []]);
    expect(adopt(upload.token, '/kept', 'one')).toBe(true);
    expect(index.find(upload.token)).toMatchObject({ place: '/kept', sensitive: true });
    expect(index.find(file.token)).toMatchObject({ place: '/file' });
    expect([adopt(upload.token, '/again', 'one'), adopt(upload.token, '/kept', 'one')]).toEqual([false, true]);
    expect(removed).toEqual(['/upload']);
  });

  it('the time to live is fixed; a read does not extend it', async () => {
    const { add, index, clock } = await setup();
    const { token } = add('/a');
    clock.advance(99_999);
    const entry = index.find(token);
    expect(entry).toBeDefined();
    if (entry) index.touch(entry);
    clock.advance(1);
    expect(index.count()).toBe(0);
    expect(index.list(false)).toEqual([]);
    expect(index.list(true)).toMatchObject([{ token, isExpired: true }]);
    expect(index.find(token)).toBeUndefined();
    expect(index.list(true)).toEqual([]);
  });

  it('the least recently used entry is dropped first; marking and listing are not uses', async () => {
    const { add, index } = await setup({ cap: 3 });
    const [a, b, c] = ['/a', '/b', '/c'].map((place) => add(place));
    index.touch(a as NonNullable<typeof a>);
    await index.markSensitive(b?.token ?? '');
    index.list(true);
    const d = add('/d');
    expect(index.find(b?.token ?? '')).toBeUndefined();
    for (const entry of [a, c, d]) expect(index.find(entry?.token ?? '')).toBeDefined();
  });

  it('owned bytes are removed with their last token; files of callers stay', async () => {
    const { add, index, removed, clock } = await setup();
    add('/owned', { owned: true });
    clock.advance(50_000);
    add('/owned');
    add('/theirs');
    clock.advance(50_000);
    await index.sweep();
    expect(removed).toEqual([]);
    clock.advance(50_000);
    await index.sweep();
    expect(removed).toEqual(['/owned']);
  });

  it('owned bytes are bounded: the oldest are removed first, the newest stays', async () => {
    const { add, index, removed } = await setup({ ownedCap: 100 });
    add('/theirs', { size: 10_000 });
    for (const name of ['/a', '/b', '/c']) add(name, { owned: true, size: 45 });
    await index.sweep();
    expect(removed).toEqual(['/a']);
    add('/huge', { owned: true, size: 500 });
    await index.sweep();
    expect(removed).toEqual(['/a', '/b', '/c']);
    expect(
      index
        .list(false)
        .map(({ place }) => place)
        .sort(),
    ).toEqual(['/huge', '/theirs']);
    // The same file twice counts once.
    const other = await setup({ ownedCap: 100 });
    for (let time = 0; time < 5; time++) other.add('/same', { owned: true, size: 60 });
    expect(other.index.count()).toBe(5);
  });

  it('a failed removal is retried, unless the file was registered again', async () => {
    const { add, index, removed, stuck, clock } = await setup();
    stuck.add('/a').add('/b');
    add('/a', { owned: true });
    add('/b', { owned: true });
    clock.advance(100_000);
    await index.sweep();
    expect(removed).toEqual([]);
    const { token } = add('/b');
    stuck.clear();
    await index.sweep();
    expect(removed).toEqual(['/a']);
    expect(index.find(token)).toBeDefined();
    await index.clear();
    expect(removed).toEqual(['/a', '/b']);
    expect(index.list(true)).toEqual([]);
  });

  it('contract 00: survives a sleep in order, with owned bytes and pending removals', async () => {
    const first = await setup();
    first.stuck.add('/gone');
    first.index.remove(first.add('/gone', { owned: true }));
    const [a, b, c] = ['/a', '/b', '/c'].map((place) => {
      first.clock.advance(1_000);
      return first.add(place, { owned: true });
    });
    await first.index.markSensitive(b?.token ?? '');
    first.clock.advance(1_000);
    first.index.touch(a as NonNullable<typeof a>);
    await first.clock.advanceAsync(1_000);

    const { stores, clock } = first;
    const second = await setup({ cap: 3, stores, clock });
    expect(second.index.list(true)).toEqual(first.index.list(true));
    expect(second.index.find(b?.token ?? '')?.sensitive).toBe(true);
    second.add('/d');
    expect(second.index.find(b?.token ?? ''), 'the least recently used').toBeUndefined();
    expect(second.index.find(c?.token ?? '')).toBeDefined();
    await second.index.sweep();
    expect(second.removed.sort()).toEqual(['/b', '/gone']);

    clock.advance(100_000);
    const third = await setup({ stores, clock });
    await third.index.sweep();
    expect(third.removed.sort()).toEqual(['/a', '/c']);
    expect(await third.store.getKeys()).toEqual([]);
  });

  it('contract 00: removes the bytes of abandoned uploads, not of running or finished ones', async () => {
    const first = await setup({ ttl: 100_000 });
    for (const place of ['/lost', '/runs', '/done', '/failed']) await first.index.begin(place);
    first.add('/done', { owned: true });
    first.index.end('/failed');
    first.clock.advance(3_600_000);
    await first.index.sweep();
    expect(first.removed, 'all of them are running in this process').toEqual([]);

    const second = await setup({ ttl: 100_000, stores: first.stores, clock: first.clock });
    expect(second.index.nextSweep()).toBe(first.clock.now() / 1000);
    await second.index.begin('/runs');
    await second.index.sweep();
    expect(second.removed).toEqual(['/lost']);
  });

  it('reports an entry that cannot be stored', async () => {
    const { store, index } = await setup();
    vi.spyOn(store, 'setItem').mockRejectedValue(new Error('full'));
    const fresh = { place: '/a', contentType: 'a/b', fileName: null, size: 1, sensitive: false, owned: true };
    await expect(index.add(fresh).saved).rejects.toThrow('full');
  });

  it('forgets an upload whose record cannot be stored, since it never gets bytes', async () => {
    const { store, index } = await setup();
    vi.spyOn(store, 'setItem').mockRejectedValue(new Error('full'));
    await expect(index.begin('/a')).rejects.toThrow('full');
    expect(index.nextSweep()).toBeUndefined();
  });
});
