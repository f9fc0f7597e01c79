import * as v from 'valibot';
import type { MediaEntry, MediaOrphanRecord, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { loadAll, readAs } from '../kit/entries.ts';
import { sha256 } from '../kit/sha256.ts';
import { createWriteBehind } from '../kit/write-behind.ts';
import type { Log } from '../log.ts';

export type { MediaEntry } from '../../storage/schema.ts';

const TOKEN_BYTES = 16;
/** Failed removals that are remembered and retried; further ones are given up. */
const MAX_ORPHANS = 1000;
/** Seconds after which the bytes of an unfinished upload are removed, such as after an eviction. */
const ABANDONED_AFTER = 3600;

const entryKey = (token: string): string => `entry:${token}`;
const orphanKey = (place: string): string => `orphan:${sha256(place)}`;

export type NewEntry = Pick<MediaEntry, 'place' | 'contentType' | 'fileName' | 'size' | 'sensitive' | 'owned'> & {
  /** By default a new one. */
  token?: string;
  sha256?: string;
};

export interface MediaIndexDeps {
  store: Store<'media'>;
  clock: Clock;
  log: Log;
  /** Lifetime of an entry, seconds. */
  ttl: number;
  /** Maximum number of entries. */
  cap: number;
  /** Maximum bytes of owned files. */
  ownedCap: number;
  /** True for an entry that must not be evicted. */
  isHeld?(token: string): boolean;
  /** Removes owned bytes; missing ones count as removed. `sweep` retries a rejected removal. */
  remove(place: string): Promise<void>;
}

/**
 * Tokens and their bytes, limited in time, number and owned bytes (contract 04 §3.1). Held in memory and written through.
 * Every step is synchronous, so two of them never interleave. The map is in the order of the last use.
 */
export async function openMediaIndex({
  store,
  clock,
  log,
  ttl,
  cap,
  ownedCap,
  isHeld = () => false,
  remove,
}: MediaIndexDeps) {
  const entries = new Map<string, MediaEntry>();
  /** Places that have tokens, and whether one of these has owned the bytes. */
  const locations = new Map<string, { tokens: number; owned: boolean; size: number }>();
  /**
   * Bytes without an entry, and the epoch seconds after which they may be removed: unfinished uploads and failed removals.
   */
  const orphans = new Map<string, number>();
  /** Orphans that are still being written. */
  const uploading = new Set<string>();
  const removals = new Set<Promise<void>>();
  const uses = createWriteBehind({ store, log, name: 'the media index' });
  let ownedBytes = 0;

  const now = () => seconds(clock);

  const save = (entry: MediaEntry): Promise<void> => store.setItem(entryKey(entry.token), { entry: { ...entry } });

  function written(write: Promise<void>): void {
    write.catch((error) => log.error(`the media index could not be saved: ${describeError(error)}`));
  }

  function addOrphan(place: string, removableAt: number): Promise<void> {
    orphans.set(place, removableAt);
    return store.setItem(orphanKey(place), { orphan: { place, removableAt } });
  }

  function removeOrphan(place: string): boolean {
    uploading.delete(place);
    if (!orphans.delete(place)) return false;
    written(store.removeItem(orphanKey(place)));
    return true;
  }

  function insert(entry: MediaEntry): void {
    entries.set(entry.token, entry);
    const place = locations.get(entry.place) ?? { tokens: 0, owned: false, size: entry.size };
    place.tokens++;
    // Orphaned bytes are owned already.
    const isOwned = removeOrphan(entry.place) || entry.owned;
    if (!place.owned && isOwned) {
      place.owned = true;
      ownedBytes += place.size;
    }
    locations.set(entry.place, place);
  }

  function retire(entry: MediaEntry): void {
    entries.delete(entry.token);
    written(store.removeItem(entryKey(entry.token)));
    const place = locations.get(entry.place);
    if (!place || --place.tokens > 0) return;
    locations.delete(entry.place);
    if (!place.owned) return;
    ownedBytes -= place.size;
    discard(entry.place);
  }

  /** Removes bytes. If that fails and no entry needs them, they stay orphans. */
  function discard(place: string): void {
    const removal = remove(place).then(
      () => void removeOrphan(place),
      () => {
        if (orphans.size < MAX_ORPHANS && !locations.has(place)) written(addOrphan(place, 0));
      },
    );
    removals.add(removal);
    void removal.finally(() => removals.delete(removal));
  }

  function prune(): void {
    for (const entry of entries.values()) if (entry.expiresAt <= now()) retire(entry);
  }

  function evict(newest: MediaEntry): void {
    for (const entry of entries.values()) {
      if (entries.size <= cap) break;
      if (!isHeld(entry.token)) retire(entry);
    }
    for (const entry of entries.values()) {
      if (ownedBytes <= ownedCap) break;
      if (entry !== newest && !isHeld(entry.token) && locations.get(entry.place)?.owned) retire(entry);
    }
  }

  function find(token: string): MediaEntry | undefined {
    prune();
    return entries.get(token);
  }

  const loaded = (await loadAll({ store, log, read: readAs(Stored) })).map(([, record]) => record);
  const stored = loaded.flatMap((record) => ('entry' in record ? [record.entry] : []));
  for (const record of loaded) if ('orphan' in record) orphans.set(record.orphan.place, record.orphan.removableAt);
  for (const entry of stored.sort((a, b) => a.lastAccessed - b.lastAccessed)) insert(entry);

  return {
    /** Records an upload before its first byte, since bytes without a record would stay forever. */
    async begin(place: string): Promise<void> {
      uploading.add(place);
      try {
        await addOrphan(place, now() + ABANDONED_AFTER);
      } catch (error) {
        removeOrphan(place);
        throw error;
      }
    },

    /** The upload failed and left no bytes, or its bytes have an entry under another place. */
    end: (place: string): void => void removeOrphan(place),

    /** Adds an entry. `saved` settles when it is stored. */
    add(fresh: NewEntry): { entry: MediaEntry; saved: Promise<void> } {
      const at = now();
      const { token = base64url(randomBytes(TOKEN_BYTES)) } = fresh;
      const entry = { ...fresh, token, createdAt: at, expiresAt: at + ttl, lastAccessed: at };
      const saved = save(entry);
      insert(entry);
      prune();
      evict(entry);
      return { entry, saved };
    },

    /**
     * Adds an entry of the other side of a mirror under its own token, in place of the same upload where that would end with
     * the process; false if the token has expired, or belongs to something else, which the other side could thus replace.
     */
    adopt(entry: MediaEntry): boolean {
      const own = find(entry.token);
      const isSame = own !== undefined && own.sha256 !== undefined && own.sha256 === entry.sha256;
      if ((own && (own.kept || !isSame)) || entry.expiresAt <= now()) return own?.place === entry.place;
      if (own) retire(own);
      insert(own ? { ...entry, sensitive: own.sensitive } : entry);
      evict(entry);
      return true;
    },

    /** Removes an entry and its owned bytes. Resolves when the bytes are gone, or are left to `sweep`. */
    async release(token: string): Promise<void> {
      const entry = entries.get(token);
      if (!entry) return;
      // If the process ends before the bytes are gone, it removes them when it wakes.
      if (locations.get(entry.place)?.tokens === 1) written(addOrphan(entry.place, 0));
      retire(entry);
      await Promise.all(removals);
    },

    /** Removes an entry, and its bytes if this was the last token of owned ones. */
    remove(entry: MediaEntry): void {
      if (entries.get(entry.token) === entry) retire(entry);
    },

    /** Returns a live entry. */
    find,

    /** Marks an entry as the most recently used one. */
    touch(entry: MediaEntry): void {
      const { token } = entry;
      if (entries.get(token) !== entry) return;
      entry.lastAccessed = now();
      entries.delete(token);
      entries.set(token, entry);
      uses.save(entryKey(token), () => {
        const current = entries.get(token);
        return current ? { entry: { ...current } } : null;
      });
    },

    /** Marks an entry as sensitive permanently. Resolves when that is stored, with false if the entry does not exist. */
    async markSensitive(token: string): Promise<boolean> {
      const entry = find(token);
      if (!entry) return false;
      entry.sensitive = true;
      await save(entry);
      return true;
    },

    /** Newest first. Expired entries, which the next sweep removes, only on request. */
    list(includeExpired: boolean): (MediaEntry & { isExpired: boolean })[] {
      const at = now();
      return [...entries.values()]
        .map((entry) => ({ ...entry, isExpired: entry.expiresAt <= at }))
        .filter(({ isExpired }) => includeExpired || !isExpired)
        .sort((one, other) => other.createdAt - one.createdAt);
    },

    count(): number {
      const at = now();
      let live = 0;
      for (const { expiresAt } of entries.values()) if (expiresAt > at) live++;
      return live;
    },

    /** Removes expired entries, abandoned uploads, and bytes whose removal failed before. */
    async sweep(): Promise<void> {
      prune();
      for (const [place, removableAt] of [...orphans]) {
        if (removableAt <= now() && !uploading.has(place)) discard(place);
      }
      await Promise.all(removals);
    },

    /** Epoch seconds of the next due `sweep`; undefined if there is nothing to remove. */
    nextSweep(): number | undefined {
      let next = Number.POSITIVE_INFINITY;
      for (const { expiresAt } of entries.values()) next = Math.min(next, expiresAt);
      for (const removableAt of orphans.values()) next = Math.min(next, removableAt);
      return Number.isFinite(next) ? next : undefined;
    },

    /** Removes every entry, and all owned bytes except those that outlive the process. */
    async clear(): Promise<void> {
      for (const entry of entries.values()) {
        if (entry.kept) entries.delete(entry.token);
        else retire(entry);
      }
      for (const place of [...orphans.keys()]) discard(place);
      await Promise.all(removals);
    },
  };
}

const Stored: v.GenericSchema<unknown, { entry: MediaEntry } | MediaOrphanRecord> = v.union([
  v.object({ orphan: v.object({ place: v.string(), removableAt: v.number() }) }),
  v.object({
    entry: v.object({
      ...v.entriesFromList(['token', 'place', 'contentType'], v.string()),
      fileName: v.nullable(v.string()),
      ...v.entriesFromList(['size', 'createdAt', 'expiresAt', 'lastAccessed'], v.number()),
      ...v.entriesFromList(['sensitive', 'owned'], v.boolean()),
      sha256: v.optional(v.string()),
      kept: v.optional(v.literal(true)),
    }),
  }),
]);
