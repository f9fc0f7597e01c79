import * as v from 'valibot';
import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { loadInOrder, readAs } from '../kit/entries.ts';
import type { Log } from '../log.ts';

/** Maximum remembered ids. */
const MAX_IDS = 1_000;

/** Ids of the last messages that have arrived at a device, so that a repeated one is not shown again (contract 12 §2). */
export async function openDelivered(store: Store<'phone-delivered'>, log: Log) {
  /** By id, in the order of delivery; `seq` names the slot. */
  const loaded = await loadInOrder({ store, log, read: readAs(Stored) });
  const ids = new Map(loaded.map(({ id, seq }) => [id, seq]));
  let last = loaded.at(-1)?.seq ?? 0;

  return {
    has: (id: string): boolean => ids.has(id),

    /** Remembers an id, in the transaction of this turn. Over the bound, it takes the slot of the oldest one. */
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
