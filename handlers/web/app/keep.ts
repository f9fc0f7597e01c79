import { del, delMany, get, keys, update } from 'idb-keyval';
import { openStore } from './browser-storage.ts';

export type Keep = ReturnType<typeof openKeep>;

/**
 * Everything that the app stores in this browser for the pairing with the relay at `base`: messages, drafts, conversations,
 * files. Shared by pages and the service worker; a change is one transaction. In a browser without storage (a private
 * window), it is in memory until the page is closed.
 */
export function openKeep(base: string) {
  const place = new URL(base).pathname;
  const database = openStore('svc kept', 'keep');
  const memory = new Map<string, unknown>();
  const keyOf = (name: string) => `${name} ${place}`;

  return {
    async read<T>(name: string): Promise<T | undefined> {
      if (memory.has(name)) return memory.get(name) as T;
      return get<T>(keyOf(name), database).catch(() => undefined);
    },
    /** Replaces a value by the result of `change`. Resolves with that. */
    async change<T>(name: string, change: (value: T | undefined) => T): Promise<T> {
      let found: T | undefined;
      let next: T | undefined;
      try {
        await update<T>(
          keyOf(name),
          (value) => {
            found = memory.has(name) ? (memory.get(name) as T) : value;
            next = change(found);
            return next;
          },
          database,
        );
        memory.delete(name);
      } catch {
        // The disk may be full. Until a write succeeds, memory has the newest value.
        next = change(memory.has(name) ? (memory.get(name) as T) : found);
        memory.set(name, next);
      }
      return next as T;
    },
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
