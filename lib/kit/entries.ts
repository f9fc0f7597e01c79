import type { Storage, StorageValue } from 'unstorage';
import type { Listed } from '../../storage/schema.ts';

/**
 * Every key of a store, or those that begin with `base`, with its value, null for one that cannot be read: one statement
 * where the driver can do so.
 */
export async function entriesOf<T extends StorageValue>(
  store: Storage<T> & Listed,
  base = '',
): Promise<[key: string, value: unknown][]> {
  if (store.entries) return store.entries(base);
  const entries: [string, unknown][] = [];
  for (const key of (await store.getKeys()).filter((key) => key.startsWith(base)))
    entries.push([key, await store.getItem(key)]);
  return entries;
}
