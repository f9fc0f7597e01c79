import { createStorage } from 'unstorage';
import type { Backend } from './backend.ts';
import { memoryBackend } from './memory.ts';
import type { BrokerRecord } from './schema.ts';

/** One change of the broker: the record of a key, or null to remove it. */
export interface BrokerChange {
  table: string;
  digest: string;
  record: BrokerRecord | null;
}

export interface BrokerStore {
  /** Every stored record that can be read. */
  all(): Promise<unknown[]>;
  /** Writes all changes as one transaction. Resolves once they are durable; rejects when nothing was written. */
  write(changes: BrokerChange[]): Promise<void>;
  close(): void;
}

const STORE = 'broker';

/** The state of a Reach broker, which is not a relay and has none of its stores. */
export function openBrokerStore(backend: Backend = memoryBackend()): BrokerStore {
  const store = createStorage<BrokerRecord>({ driver: backend.driver(STORE) });
  return {
    async all() {
      if (backend.entries) return (await backend.entries(STORE)).map(([, value]) => value);
      return Promise.all((await store.getKeys()).map((key) => store.getItem(key)));
    },
    async write(changes) {
      const write = ({ table, digest, record }: BrokerChange) => {
        const key = `${table}:${digest}`;
        return record ? store.setItem(key, record) : store.removeItem(key);
      };
      await Promise.all(backend.batch(() => changes.map(write)));
    },
    close: () => backend.close(),
  };
}
