import type { Storage, StorageValue } from 'unstorage';
import type { Backed } from '../../storage/schema.ts';

/**
 * Every key of a store, or those that begin with `base`, with its value, null for one that cannot be read: one statement
 * where the driver can do so.
 */
export async function entriesOf<T extends StorageValue>(
  store: Storage<T> & Backed,
  base = '',
): Promise<[key: string, value: unknown][]> {
  if (store.entries) return store.entries(base);
  const entries: [string, unknown][] = [];
  for (const key of (await store.getKeys()).filter((key) => key.startsWith(base)))
    entries.push([key, await store.getItem(key)]);
  return entries;
}

/**
 * Runs `work`, which only writes and does not wait: what it writes to this and to other durable stores becomes durable
 * together, or not at all (`storage/backend.ts`).
 */
export const batched = <T>(store: Backed, work: () => T): T => (store.batch ? store.batch(work) : work());
