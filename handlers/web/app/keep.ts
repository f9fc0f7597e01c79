import { createStore, delMany, get, keys, update } from 'idb-keyval';

export type Keep = ReturnType<typeof openKeep>;

/**
 * Everything that the app keeps in this browser for the pairing with the relay at `base`: messages, drafts, conversations,
 * files. Pages and the service worker share it; a change is one transaction. A browser that keeps nothing (a private
 * window) has it in memory, until the page is closed.
 */
export function openKeep(base: string) {
  const place = new URL(base).pathname;
  const database = createStore('svc kept', 'keep');
  const memory = new Map<string, unknown>();
  const keyOf = (name: string) => `${name} ${place}`;

  return {
    async read<T>(name: string): Promise<T | undefined> {
      const stored = await get<T>(keyOf(name), database).catch(() => undefined);
      return stored ?? (memory.get(name) as T | undefined);
    },
    /** Replaces a value by what `change` makes of it. Resolves with that. */
    async change<T>(name: string, change: (value: T | undefined) => T): Promise<T> {
      let next: T | undefined;
      try {
        await update<T>(
          keyOf(name),
          (value) => {
            next = change(value);
            return next;
          },
          database,
        );
      } catch {
        next = change(memory.get(name) as T | undefined);
        memory.set(name, next);
      }
      return next as T;
    },
    /** Forgets everything, for this relay alone. */
    async clear(): Promise<void> {
      memory.clear();
      const all = await keys<string>(database).catch(() => []);
      await delMany(
        all.filter((key) => key.endsWith(` ${place}`)),
        database,
      ).catch(() => {});
    },
  };
}
