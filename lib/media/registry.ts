import type { MediaEntry } from '../../storage/schema.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';

const TOKEN_BYTES = 16;
/** Files that could not be removed are tried again; more of them than this are given up. */
const MAX_LEFT = 1000;

export type { MediaEntry };
export type NewEntry = Pick<MediaEntry, 'place' | 'contentType' | 'fileName' | 'size' | 'sensitive' | 'owned'>;

export interface RegistryParts {
  clock: Clock;
  /** Seconds. */
  ttl: number;
  /** Most entries. */
  cap: number;
  /** Most bytes of owned files. */
  ownedCap: number;
  /** Removes owned bytes. What is not there counts as removed; a rejection is tried again by `sweep`. */
  remove(place: string): Promise<void>;
  /** An entry came, changed or went; for whoever keeps them. */
  changed?(token: string, entry: MediaEntry | null): void;
}

export type Registry = ReturnType<typeof createRegistry>;

/**
 * Tokens and what they stand for: limited in time, number, and bytes that are the relay's own. Every step is synchronous,
 * so two of them never mix; the order of the map is least recently used first.
 */
export function createRegistry({ clock, ttl, cap, ownedCap, remove, changed }: RegistryParts) {
  const entries = new Map<string, MediaEntry>();
  /** Places with a token, and whether they are owned by any that has been there since. */
  const places = new Map<string, { tokens: number; owned: boolean; size: number }>();
  const left = new Set<string>();
  const removals = new Set<Promise<void>>();
  let ownedBytes = 0;

  function enter(entry: MediaEntry): void {
    entries.set(entry.token, entry);
    const place = places.get(entry.place) ?? { tokens: 0, owned: false, size: entry.size };
    place.tokens++;
    // A file that waits to be removed is owned already.
    if (!place.owned && (entry.owned || left.delete(entry.place))) {
      place.owned = true;
      ownedBytes += place.size;
    }
    places.set(entry.place, place);
  }

  function retire(entry: MediaEntry): void {
    entries.delete(entry.token);
    changed?.(entry.token, null);
    const place = places.get(entry.place);
    if (!place || --place.tokens > 0) return;
    places.delete(entry.place);
    if (!place.owned) return;
    ownedBytes -= place.size;
    discard(entry.place);
  }

  function discard(place: string): void {
    left.delete(place);
    const removal = remove(place).catch(() => {
      if (left.size < MAX_LEFT && !places.has(place)) left.add(place);
    });
    removals.add(removal);
    void removal.finally(() => removals.delete(removal));
  }

  function prune(): void {
    const now = seconds(clock);
    for (const entry of entries.values()) if (entry.expiresAt <= now) retire(entry);
  }

  function evict(newest: MediaEntry): void {
    for (const entry of entries.values()) {
      if (entries.size <= cap) break;
      retire(entry);
    }
    for (const entry of entries.values()) {
      if (ownedBytes <= ownedCap) break;
      if (entry !== newest && places.get(entry.place)?.owned) retire(entry);
    }
  }

  const alive = (token: string): MediaEntry | undefined => {
    prune();
    return entries.get(token);
  };

  return {
    /** Enters something under a token of its own. */
    add(fresh: NewEntry): MediaEntry {
      const now = seconds(clock);
      const token = base64url(randomBytes(TOKEN_BYTES));
      const entry = { ...fresh, token, createdAt: now, expiresAt: now + ttl, lastAccessed: now };
      enter(entry);
      changed?.(token, entry);
      prune();
      evict(entry);
      return entry;
    },

    /** Takes up an entry that was kept. */
    restore: enter,

    /** A live entry. */
    find: alive,

    /** An entry was served: it is the most recently used now. */
    touch(entry: MediaEntry): void {
      if (entries.get(entry.token) !== entry) return;
      entry.lastAccessed = seconds(clock);
      entries.delete(entry.token);
      entries.set(entry.token, entry);
      changed?.(entry.token, entry);
    },

    /** Marks an entry, for good; false when there is none. */
    markSensitive(token: string): boolean {
      const entry = alive(token);
      if (!entry) return false;
      entry.sensitive = true;
      changed?.(token, entry);
      return true;
    },

    /** Newest first; expired ones, which the next sweep removes, only on request. */
    list(includeExpired: boolean): (MediaEntry & { isExpired: boolean })[] {
      const now = seconds(clock);
      return [...entries.values()]
        .map((entry) => ({ ...entry, isExpired: entry.expiresAt <= now }))
        .filter(({ isExpired }) => includeExpired || !isExpired)
        .sort((one, other) => other.createdAt - one.createdAt);
    },

    count(): number {
      const now = seconds(clock);
      let live = 0;
      for (const { expiresAt } of entries.values()) if (expiresAt > now) live++;
      return live;
    },

    /** Removes what has expired, and tries again what could not be removed. */
    async sweep(): Promise<void> {
      prune();
      for (const place of [...left]) discard(place);
      await Promise.all(removals);
    },

    /** When the first entry expires, epoch seconds. */
    nextExpiry(): number | undefined {
      let next: number | undefined;
      for (const { expiresAt } of entries.values()) if (next === undefined || expiresAt < next) next = expiresAt;
      return next;
    },

    /** Forgets everything and removes what is owned. */
    async clear(): Promise<void> {
      for (const entry of entries.values()) retire(entry);
      for (const place of [...left]) discard(place);
      await Promise.all(removals);
    },
  };
}
