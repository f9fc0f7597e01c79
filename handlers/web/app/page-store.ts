import { del, delMany, get, keys, update } from 'idb-keyval';
import { openStore } from './browser-storage.ts';

export type PageStore = ReturnType<typeof openPageStore>;

type Change = (value: unknown) => unknown;

/** A value that could not be written. */
interface Held {
  value: unknown;
  /** The changes that made it, if the stored one could not be read either: they are made again once it can be. */
  unread?: Change[];
}

/**
 * A record with an entry replaced, or removed if it is undefined. Over `max` entries, the one with the oldest change is
 * dropped.
 */
export function withEntry<T>(
  record: Readonly<Record<string, T>>,
  key: string,
  entry: T | undefined,
  max: number,
): Record<string, T> {
  const others = Object.entries(record).filter(([other]) => other !== key);
  return Object.fromEntries(entry === undefined ? others : [...others.slice(1 - max), [key, entry]]);
}

/** Maximum changes of one value that are made again. */
const MAX_UNREAD = 100;

/**
 * Everything that the app stores in this browser for the pairing with the relay at `base`: messages, drafts, conversations,
 * files. Shared by pages and the service worker; a change is one transaction. In a browser without storage (a private
 * window), it is in memory until the page is closed.
 */
export function openPageStore(base: string) {
  const place = new URL(base).pathname;
  const database = openStore('svc kept', 'keep');
  const memory = new Map<string, Held>();
  const keyOf = (name: string) => `${name} ${place}`;

  /** The present value, from the stored one. */
  function present<T>(name: string, stored: T | undefined): T | undefined {
    const held = memory.get(name);
    if (!held) return stored;
    return (held.unread ? held.unread.reduce((value, change) => change(value), stored as unknown) : held.value) as T;
  }

  /** Rejects for a value that cannot be read now. */
  async function find<T>(name: string): Promise<T | undefined> {
    try {
      return present(name, await get<T>(keyOf(name), database));
    } catch (error) {
      const held = memory.get(name);
      if (!held) throw error;
      return held.value as T;
    }
  }

  return {
    find,
    read: <T>(name: string): Promise<T | undefined> => find<T>(name).catch(() => undefined),
    /** Replaces a value by the result of `change`, which may be called several times. Resolves with that. */
    async change<T>(name: string, change: (value: T | undefined) => T): Promise<T> {
      let found: T | undefined;
      let next: T | undefined;
      let isRead = false;
      try {
        await update<T>(
          keyOf(name),
          (value) => {
            found = present(name, value);
            isRead = true;
            next = change(found);
            return next;
          },
          database,
        );
        memory.delete(name);
      } catch {
        // The disk may be full. Until a write succeeds, memory has the newest value.
        const { value, unread } = memory.get(name) ?? { unread: [] };
        next = change(isRead ? found : (value as T | undefined));
        const missed = isRead ? undefined : unread && [...unread, change as Change].slice(-MAX_UNREAD);
        memory.set(name, { value: next, unread: missed });
      }
      return next as T;
    },
    /** True if the newest value could not be written so far, and ends with the page. */
    isHeld: (name: string): boolean => memory.has(name),
    async remove(name: string): Promise<void> {
      memory.delete(name);
      await del(keyOf(name), database).catch(() => {});
    },
    /** Erases everything for this relay only. */
    async clear(): Promise<void> {
      memory.clear();
      try {
        for (const key of Object.keys(sessionStorage)) if (key.endsWith(` ${place}`)) sessionStorage.removeItem(key);
      } catch {
        // Blocked, or in a service worker, which has no local storage.
      }
      const all = await keys<string>(database).catch(() => []);
      await delMany(
        all.filter((key) => key.endsWith(` ${place}`)),
        database,
      ).catch(() => {});
    },
  };
}
