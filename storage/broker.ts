import { createStorage, prefixStorage, type Storage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { createGroupCommit } from './group-commit.ts';
import type { BrokerRecord } from './schema.ts';
import { createTable, readEntries, type SqlExecutor, sqlDriver } from './sql-driver.ts';

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

/** The state of a Reach broker, which is no relay and has none of its stores; in memory without an `executor`. */
export function openBrokerStore(executor?: SqlExecutor): BrokerStore {
  const storage = createStorage();
  if (executor) createTable(executor);
  const commits = executor && createGroupCommit(executor);
  storage.mount(STORE, commits ? sqlDriver({ commits, store: STORE }) : memoryDriver());
  const store = prefixStorage(storage, STORE) as unknown as Storage<BrokerRecord>;
  return {
    async all() {
      if (commits) return (await readEntries(commits, STORE)).map(([, value]) => value);
      return Promise.all((await store.getKeys()).map((key) => store.getItem(key)));
    },
    async write(changes) {
      // Without an await in between: the writes of one turn are one transaction.
      const writes = changes.map(({ table, digest, record }) => {
        const key = `${table}:${digest}`;
        return record ? store.setItem(key, record) : store.removeItem(key);
      });
      await Promise.all(writes);
    },
    close: () => commits?.close(),
  };
}
