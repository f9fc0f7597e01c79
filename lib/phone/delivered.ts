import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { entriesOf } from '../kit/entries.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';

/** Remembered ids. */
const MAX_IDS = 1_000;

/**
 * Ids of the last messages that have arrived at a device, so that a sender who repeats one does not have it shown again
 * (contract 12 §2).
 */
export async function openDelivered(store: Store<'phone-delivered'>, log: Log) {
  /** By id, the one delivered last at the end; its `seq` names its slot. */
  const ids = new Map<string, number>();
  const loaded: [id: string, seq: number][] = [];
  for (const [, row] of await entriesOf(store)) {
    if (isObject(row) && Number.isSafeInteger(row.seq) && typeof row.id === 'string')
      loaded.push([row.id, row.seq as number]);
    else log.warn('skipped a stored record that cannot be read');
  }
  for (const [id, seq] of loaded.sort(([, a], [, b]) => a - b)) ids.set(id, seq);
  let last = loaded.at(-1)?.[1] ?? 0;

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
