import type { Storage } from 'unstorage';
import * as v from 'valibot';
import type { RingRecord } from '../../storage/schema.ts';
import { loadAll, readAs, type Warnings } from './entries.ts';
import { type JsonObject, parseObject } from './json.ts';
import { createWriteBehind } from './write-behind.ts';

export interface RingOptions<T> {
  store: Storage<RingRecord>;
  log: Warnings;
  /** Names the ring in a warning. */
  name: string;
  size?: number;
  /** Recognises an entry among stored objects; by default every object is one. */
  isEntry?(value: JsonObject): boolean;
  /** Called for every stored entry, oldest first, with the function that stores it again. */
  loaded?(entry: T, save: () => void): void;
}

/**
 * The last `size` entries, held in memory and written behind (`write-behind.ts`). Entries are JSON objects, which are
 * stored as text: unstorage drops some member names when it reads an object back. No operation searches the entries.
 */
export async function openRing<T extends object>(options: RingOptions<T>) {
  const { store, log, size = 100, isEntry = () => true } = options;
  const slots: { seq: number; entry: T }[] = [];
  const persistence = createWriteBehind(options);

  const read = (value: unknown, key: string) => {
    const { seq, json } = readAs(Stored)(value) ?? { seq: Number.NaN, json: '' };
    const entry = parseObject(json);
    return entry && isEntry(entry) && key === String(seq % size) ? { seq, entry: entry as T } : undefined;
  };
  const loaded = await loadAll({ store, log, read });
  let next = 0;
  for (const [key, slot] of loaded.sort(([, a], [, b]) => a.seq - b.seq)) {
    slots[Number(key)] = slot;
    next = slot.seq + 1;
    options.loaded?.(slot.entry, saverOf(slot.seq, slot.entry));
  }

  function saverOf(seq: number, entry: T): () => void {
    const record = () => ({ seq, json: JSON.stringify(entry) });
    return () => {
      // A newer entry may have taken the slot.
      if (slots[seq % size]?.seq === seq) persistence.save(String(seq % size), record);
    };
  }

  return {
    /**
     * Adds the newest entry, which replaces the oldest. If the caller changes the entry later, the returned function
     * stores it again.
     */
    add(entry: T): () => void {
      const seq = next++;
      slots[seq % size] = { seq, entry };
      const save = saverOf(seq, entry);
      save();
      return save;
    },

    /** At most `limit` entries, newest first. */
    list(limit: number): T[] {
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

const Stored: v.GenericSchema<unknown, RingRecord> = v.object({
  seq: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  json: v.string(),
});
