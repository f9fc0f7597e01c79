import type { Storage } from 'unstorage';
import type { RingRecord } from '../../storage/schema.ts';
import type { Log } from '../log.ts';
import type { Clock } from './clock.ts';
import { isObject, parseJson } from './json.ts';
import { createWriteBehind, loadAll } from './write-behind.ts';

export interface Ring<T> {
  /**
   * Adds the newest entry; the oldest makes room for it. The caller may change the entry later, and then calls the
   * returned function to have it stored again.
   */
  add(entry: T): () => void;
  /** At most `limit` entries, newest first. */
  list(limit: number): T[];
}

export interface RingParts {
  store: Storage<RingRecord>;
  clock: Clock;
  log: Log;
  /** Names the ring in a warning. */
  name: string;
  size?: number;
}

/**
 * The last `size` entries, in memory and written behind (`write-behind.ts`). Entries are JSON objects, which are stored
 * as text: unstorage drops some member names when it reads an object back. Nothing here is ever searched.
 */
export async function openRing<T extends object>({ store, size = 100, ...parts }: RingParts): Promise<Ring<T>> {
  const slots: { seq: number; entry: T }[] = [];
  const persistence = createWriteBehind({ store, ...parts });

  const loaded = await loadAll(store, parts.log, (value, key) => {
    if (!isObject(value) || !Number.isSafeInteger(value.seq) || typeof value.json !== 'string') return undefined;
    const seq = value.seq as number;
    const entry = parseJson(value.json);
    return isObject(entry) && seq >= 0 && key === String(seq % size) ? { seq, entry: entry as T } : undefined;
  });
  for (const [key, slot] of loaded) slots[Number(key)] = slot;
  let next = Math.max(-1, ...loaded.map(([, { seq }]) => seq)) + 1;

  return {
    add(entry) {
      const seq = next++;
      const at = seq % size;
      slots[at] = { seq, entry };
      const record = () => ({ seq, json: JSON.stringify(entry) });
      const save = () => {
        // Another entry may have taken the slot.
        if (slots[at]?.seq === seq) persistence.save(String(at), record);
      };
      save();
      return save;
    },

    list(limit) {
      const entries: T[] = [];
      for (let seq = next - 1; seq >= Math.max(0, next - size) && entries.length < limit; seq--) {
        const slot = slots[seq % size];
        // A damaged record left a gap.
        if (slot?.seq === seq) entries.push(slot.entry);
      }
      return entries;
    },
  };
}
