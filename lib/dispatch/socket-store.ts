import type { StorageValue } from 'unstorage';
import { loadAll } from '../kit/entries.ts';
import { asObject, type JsonObject } from '../kit/json.ts';
import { createWriteBehind, type WriteBehindParts } from '../kit/write-behind.ts';

/**
 * The store of a registry whose process is evicted while its sockets stay open (edge): loaded once, handed out to each
 * socket that is back, and written behind, because a lost write costs no more than the device's next report brings back.
 */
export async function openSocketStore<T extends StorageValue>(parts: WriteBehindParts<T>) {
  const behind = createWriteBehind(parts);
  const loaded = new Map(await loadAll({ ...parts, read: (value) => asObject(value) ?? undefined }));

  return {
    save: behind.save,

    /** Removes a record from what was loaded, and returns it. */
    take(key: string): JsonObject | undefined {
      const record = loaded.get(key);
      loaded.delete(key);
      return record;
    },

    /** Takes what is left of what was loaded. */
    takeRest(): [key: string, record: JsonObject][] {
      const rest = [...loaded];
      loaded.clear();
      return rest;
    },
  };
}
