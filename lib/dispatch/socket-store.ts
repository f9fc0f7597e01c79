import type { StorageValue } from 'unstorage';
import { loadAll } from '../kit/entries.ts';
import { asObject, type JsonObject } from '../kit/json.ts';
import { createWriteBehind, type WriteBehindOptions } from '../kit/write-behind.ts';

/**
 * The store of a registry whose process is evicted while its sockets stay open (edge). It is loaded once, handed out to
 * each restored socket, and written behind: a lost write costs no more than the state of the device's next report.
 */
export async function openSocketStore<T extends StorageValue>(options: WriteBehindOptions<T>) {
  const behind = createWriteBehind(options);
  const loaded = new Map(await loadAll({ ...options, read: (value) => asObject(value) ?? undefined }));

  return {
    save: behind.save,

    /** Removes a record from what was loaded, and returns it. */
    take(key: string): JsonObject | undefined {
      const record = loaded.get(key);
      loaded.delete(key);
      return record;
    },

    /** Takes the loaded records that are left. */
    takeRest(): [key: string, record: JsonObject][] {
      const rest = [...loaded];
      loaded.clear();
      return rest;
    },
  };
}
