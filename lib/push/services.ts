import * as v from 'valibot';
import type { PushServiceRecord, Store } from '../../storage/schema.ts';
import { listOf, readAs } from '../kit/entries.ts';
import type { Log } from '../log.ts';

const STORE_KEY = 'services';
/** Maximum hosts remembered; browsers have few push services. */
const MAX_SERVICES = 16;

/** Outcome of the last call to each push service, which tells the operator whether notices arrive. */
export async function openServices({ store, log }: { store: Store<'push'>; log: Log }) {
  const records = new Map<string, PushServiceRecord>();
  const stored = readAs(Stored)(await store.getItem(STORE_KEY));
  for (const record of stored?.services ?? []) records.set(record.host, record);

  return {
    note(record: PushServiceRecord): void {
      // The most recently called one comes last.
      records.delete(record.host);
      records.set(record.host, record);
      const [oldest] = records.keys();
      if (records.size > MAX_SERVICES && oldest !== undefined) records.delete(oldest);
      store.setItem(STORE_KEY, { services: [...records.values()] }).catch(() => {
        log.debug('the state of a push service could not be saved');
      });
    },

    /** The records of the named hosts, latest first. */
    of: (hosts: ReadonlySet<string>): PushServiceRecord[] =>
      [...records.values()].filter(({ host }) => hosts.has(host)).reverse(),
  };
}

const Service: v.GenericSchema<PushServiceRecord> = v.object({
  host: v.string(),
  at: v.number(),
  result: v.picklist(['sent', 'gone', 'refused', 'later']),
  status: v.nullable(v.number()),
  error: v.nullable(v.string()),
});
const Stored = v.object({ services: listOf(Service) });
