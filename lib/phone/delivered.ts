import * as v from 'valibot';
import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { loadInOrder, readAs } from '../kit/entries.ts';
import type { Log } from '../log.ts';

/** Remembered ids. */
const MAX_IDS = 1_000;

/**
 * Ids of the last messages that have arrived at a device, so that a sender who repeats one does not have it shown again
 * (contract 12 §2).
 */
export async function openDelivered(store: Store<'phone-delivered'>, log: Log) {
  /** By id, the one delivered last at the end; its `seq` names its slot. */
  const loaded = await loadInOrder({ store, log, read: readAs(Stored) });
  const ids = new Map(loaded.map(({ id, seq }) => [id, seq]));
  let last = loaded.at(-1)?.seq ?? 0;

  return {
    has: (id: string): boolean => ids.has(id),

    /** Remembers an id, in the transaction of this turn. The oldest one over the bound gives its slot to it. */
    add(id: string): void {
      if (ids.has(id)) return;
      const seq = ++last;
      ids.set(id, seq);
      if (ids.size > MAX_IDS) ids.delete(ids.keys().next().value as string);
      store
        .setItem(String(seq % MAX_IDS), { seq, id })
        .catch((error) => log.warn(`a delivered message could not be remembered: ${describeError(error)}`));
    },
  };
}

const Stored = v.object({ seq: v.pipe(v.number(), v.safeInteger()), id: v.string() });
