import type { PushServiceRecord, Store } from '../../storage/schema.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';

const STORE_KEY = 'services';
/** Hosts that are remembered: push services of browsers have few. */
const MAX_SERVICES = 16;

/** Outcome of the last call to each push service, which tells the operator whether calls arrive at all. */
export async function openServices({ store, log }: { store: Store<'push'>; log: Log }) {
  const records = new Map<string, PushServiceRecord>();
  for (const record of readRecords(await store.getItem(STORE_KEY))) records.set(record.host, record);

  return {
    note(record: PushServiceRecord): void {
      // The one that was called last comes last.
      records.delete(record.host);
      records.set(record.host, record);
      const [oldest] = records.keys();
      if (records.size > MAX_SERVICES && oldest !== undefined) records.delete(oldest);
      store.setItem(STORE_KEY, { services: [...records.values()] }).catch(() => {
        log.debug('the state of a push service could not be saved');
      });
    },

    /** Those of the named hosts that were called, latest first. */
    of: (hosts: ReadonlySet<string>): PushServiceRecord[] =>
      [...records.values()].filter(({ host }) => hosts.has(host)).reverse(),
  };
}

function readRecords(value: unknown): PushServiceRecord[] {
  if (!isObject(value) || !Array.isArray(value.services)) return [];
  return value.services.filter(
    (record) => isObject(record) && typeof record.host === 'string' && typeof record.at === 'number',
  ) as unknown as PushServiceRecord[];
}
