import type { Storage } from 'unstorage';
import type { Backed } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { batched, loadAll } from '../kit/entries.ts';
import type { Log } from '../log.ts';

/** A stored row. `seq` grows with every new row and restores their order after a restart. */
export type Row = { seq: number };

export type Rows<R extends Row> = Awaited<ReturnType<typeof openRows<R>>>;

export interface RowsDeps<R extends Row> {
  store: Storage<R> & Backed;
  log: Log;
  /** Parses a row; undefined if the value is not one. */
  read(value: unknown): R | undefined;
}

/**
 * A short list, written through. Rows are stored in numbered slots, and a new row reuses the slot of a removed one, so that
 * every change of the list (append, append in place of the oldest, replace, remove, clear) is one write.
 */
export async function openRows<R extends Row>({ store, log, read }: RowsDeps<R>) {
  const slots = new Map(await loadAll({ store, log, read }, 'skipped'));
  /** The rows in the slots, without those whose last write has failed. */
  const stored = new Set<R>(slots.values());
  /** Slots without a row whose removal has failed. */
  const left = new Set<string>();
  const loaded = [...slots.values()].sort((a, b) => a.seq - b.seq);
  let last = loaded.at(-1)?.seq ?? 0;

  function unused(): string {
    let slot = 0;
    while (slots.has(String(slot))) slot++;
    return String(slot);
  }

  /** A row whose write fails keeps its slot, and is written there by the next save. */
  function write(slot: string, row: R): Promise<void> {
    const before = slots.get(slot);
    if (before) stored.delete(before);
    slots.set(slot, row);
    stored.add(row);
    left.delete(slot);
    return store.setItem(slot, row).catch((error) => {
      if (slots.get(slot) === row) stored.delete(row);
      throw error;
    });
  }

  /** Awaits the removal of rows from their slots. If it fails, it is repeated by the next save. */
  function follow(gone: readonly string[], removal: Promise<void>): Promise<void> {
    for (const slot of gone) {
      const row = slots.get(slot);
      if (row) stored.delete(row);
      slots.delete(slot);
      left.delete(slot);
    }
    return removal.catch((error) => {
      for (const slot of gone) if (!slots.has(slot)) left.add(slot);
      throw error;
    });
  }

  return {
    /** The rows at opening, oldest first. */
    loaded: loaded as readonly R[],
    /** The `seq` for a new row. */
    next: (): number => ++last,
    /** Makes the store contain exactly these rows; resolves when it does. Writes only what has changed, or could not be written. */
    async save(rows: readonly R[]): Promise<void> {
      const added = rows.filter((row) => !stored.has(row));
      const free = new Map<number, string>();
      if (slots.size > rows.length - added.length) {
        const wanted = new Set(rows);
        for (const [slot, row] of slots) if (!wanted.has(row) || !stored.has(row)) free.set(row.seq, slot);
      }
      if (rows.length === 0 && slots.size + left.size > 0) {
        return follow([...slots.keys(), ...left], store.clear());
      }
      const writes: Promise<void>[] = [];
      batched(store, () => {
        for (const row of added) {
          // A replacement takes the slot of its predecessor, so that the store never contains both.
          const seq = free.has(row.seq) ? row.seq : free.keys().next().value;
          const slot = (seq !== undefined && free.get(seq)) || unused();
          if (seq !== undefined) free.delete(seq);
          writes.push(write(slot, row));
        }
        for (const slot of [...free.values(), ...left]) writes.push(follow([slot], store.removeItem(slot)));
      });
      await Promise.all(writes);
    },
    /** Runs `work`, whose writes to these rows and to other stores become durable together. */
    batch: <T>(work: () => T): T => batched(store, work),
  };
}

/** Saves without waiting: after a failure, a row that is left in the store is delivered once more at most. */
export function saveLater<R extends Row>(rows: Rows<R>, list: readonly R[], log: Log): Promise<void> {
  return rows.save(list).catch((error) => log.warn(`a change could not be saved: ${describeError(error)}`));
}
