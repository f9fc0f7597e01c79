import * as v from 'valibot';
import type { MirrorRecord, Store } from '../../storage/schema.ts';
import type { Clock } from '../kit/clock.ts';
import { entriesOf } from '../kit/entries.ts';
import type { Log } from '../log.ts';

type Schema<R> = v.GenericSchema<unknown, R>;

export type Records = Awaited<ReturnType<typeof loadRecords>>;

/** Dependencies of what is stored of the mirror. */
export interface RecordDeps {
  store: Store<'mirror'>;
  records: Records;
  clock: Clock;
  log: Log;
}

/** Finite numbers are times in epoch seconds, counts are whole. */
export const time = v.pipe(v.number(), v.finite());
export const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));

/**
 * Reads the store of the mirror in one statement. Each record is handed out once, so that the values read are not held
 * here as well. A damaged record is left out with a warning, unless a second schema, `remains`, can read a part of it.
 */
export async function loadRecords({ store, log }: Pick<RecordDeps, 'store' | 'log'>) {
  const stored = new Map(await entriesOf(store));
  const damaged = new Map<string, MirrorRecord | undefined>();

  function read<R extends MirrorRecord>(key: string, schema: Schema<R>, remains: Schema<R>): R | undefined {
    const value = stored.get(key);
    stored.delete(key);
    const whole = v.safeParse(schema, value);
    if (whole.success) return whole.output;
    log.warn('skipped a record of the mirror that cannot be read: both sides compare everything anew');
    const left = v.safeParse(remains, value);
    const record = left.success ? left.output : undefined;
    damaged.set(key, record);
    return record;
  }

  return {
    /** The damaged records by their keys, with what is left of them. */
    damaged: damaged as ReadonlyMap<string, MirrorRecord | undefined>,

    one: <R extends MirrorRecord>(key: string, schema: Schema<R>, remains: Schema<R> = v.never()): R | undefined =>
      stored.has(key) ? read(key, schema, remains) : undefined,

    /** The records whose keys begin with `base`, by the rest of the key. */
    below<R extends MirrorRecord>(base: string, schema: Schema<R>, remains: Schema<R> = v.never()): Map<string, R> {
      const found = new Map<string, R>();
      for (const key of stored.keys()) {
        const record = key.startsWith(base) ? read(key, schema, remains) : undefined;
        if (record) found.set(key.slice(base.length), record);
      }
      return found;
    },
  };
}
