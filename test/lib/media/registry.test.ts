import { describe, expect, it } from 'vitest';
import { createRegistry, type NewEntry } from '../../../lib/media/registry.ts';
import { createTestClock } from '../../support/clock.ts';

function setup({ cap = 500, ownedCap = 1000, ttl = 100 } = {}) {
  const clock = createTestClock();
  const removed: string[] = [];
  const stuck = new Set<string>();
  const registry = createRegistry({
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
    registry.add({ place, contentType: 'a/b', fileName: null, size: 10, sensitive: false, owned: false, ...more });
  return { clock, removed, stuck, registry, add };
}

describe('the registry (contract 04 §3.1)', () => {
  it('a token of 22 characters for every registration, also of the same file', () => {
    const { add, registry } = setup();
    const tokens = Array.from({ length: 100 }, () => add('/a').token);
    expect(new Set(tokens).size).toBe(100);
    for (const token of tokens) expect(token).toMatch(/^[A-Za-z0-9_-]{22}$/);
    expect(registry.count()).toBe(100);
  });

  it('the time to live is fixed; reading does not extend it', () => {
    const { add, registry, clock } = setup();
    const { token } = add('/a');
    clock.advance(99_999);
    const entry = registry.find(token);
    expect(entry).toBeDefined();
    if (entry) registry.touch(entry);
    clock.advance(1);
    expect(registry.count()).toBe(0);
    expect(registry.list(false)).toEqual([]);
    expect(registry.list(true)).toMatchObject([{ token, isExpired: true }]);
    expect(registry.find(token)).toBeUndefined();
    expect(registry.list(true)).toEqual([]);
  });

  it('the least recently used goes first; marking and listing are no use', () => {
    const { add, registry } = setup({ cap: 3 });
    const [a, b, c] = ['/a', '/b', '/c'].map((place) => add(place));
    registry.touch(a as NonNullable<typeof a>);
    registry.markSensitive(b?.token ?? '');
    registry.list(true);
    const d = add('/d');
    expect(registry.find(b?.token ?? '')).toBeUndefined();
    for (const entry of [a, c, d]) expect(registry.find(entry?.token ?? '')).toBeDefined();
  });

  it('owned bytes go with their last token, whoever registered that; files of callers stay', async () => {
    const { add, registry, removed, clock } = setup();
    add('/owned', { owned: true });
    clock.advance(50_000);
    add('/owned');
    add('/theirs');
    clock.advance(50_000);
    await registry.sweep();
    expect(removed).toEqual([]);
    clock.advance(50_000);
    await registry.sweep();
    expect(removed).toEqual(['/owned']);
  });

  it('owned bytes are bounded, the oldest go first, the newest stays', async () => {
    const { add, registry, removed } = setup({ ownedCap: 100 });
    add('/theirs', { size: 10_000 });
    for (const name of ['/a', '/b', '/c']) add(name, { owned: true, size: 45 });
    await registry.sweep();
    expect(removed).toEqual(['/a']);
    add('/huge', { owned: true, size: 500 });
    await registry.sweep();
    expect(removed).toEqual(['/a', '/b', '/c']);
    expect(
      registry
        .list(false)
        .map(({ place }) => place)
        .sort(),
    ).toEqual(['/huge', '/theirs']);
    // The same file twice counts once.
    const other = setup({ ownedCap: 100 });
    for (let time = 0; time < 5; time++) other.add('/same', { owned: true, size: 60 });
    expect(other.registry.count()).toBe(5);
  });

  it('what cannot be removed is tried again, and not once it is registered anew', async () => {
    const { add, registry, removed, stuck, clock } = setup();
    stuck.add('/a').add('/b');
    add('/a', { owned: true });
    add('/b', { owned: true });
    clock.advance(100_000);
    await registry.sweep();
    expect(removed).toEqual([]);
    const { token } = add('/b');
    stuck.clear();
    await registry.sweep();
    expect(removed).toEqual(['/a']);
    expect(registry.find(token)).toBeDefined();
    await registry.clear();
    expect(removed).toEqual(['/a', '/b']);
    expect(registry.list(true)).toEqual([]);
  });
});
