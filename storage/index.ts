import { createStorage, prefixStorage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { createGroupCommit } from './group-commit.ts';
import { createLookups, lookupsOf } from './lookups.ts';
import type { Store, StoreName, Stores } from './schema.ts';
import { createTable, readEntries, type SqlExecutor, sqlDriver } from './sql-driver.ts';

export type Runtime = 'node' | 'edge';

/**
 * Where each store lives: in the state file (`disk`), in the Durable Object's SQLite (`object`), or in the memory of
 * the process. What a restart may forget, a sleeping object may not (contract 00, "What survives a restart").
 */
export const PLACES: Record<StoreName, { node: 'disk' | 'memory'; edge: 'object' | 'memory' }> = {
  sessions: { node: 'disk', edge: 'object' },
  'ended-sessions': { node: 'disk', edge: 'object' },
  clock: { node: 'disk', edge: 'memory' },
  pairing: { node: 'memory', edge: 'object' },
  'pairing-codes': { node: 'memory', edge: 'object' },
  limiter: { node: 'memory', edge: 'object' },
  switches: { node: 'memory', edge: 'object' },
  freeze: { node: 'disk', edge: 'object' },
  sockets: { node: 'memory', edge: 'object' },
  bridge: { node: 'memory', edge: 'object' },
  'bridge-activity': { node: 'memory', edge: 'object' },
  desktop: { node: 'memory', edge: 'object' },
  'desktop-activity': { node: 'memory', edge: 'object' },
  media: { node: 'memory', edge: 'object' },
  phone: { node: 'disk', edge: 'object' },
  'phone-replies': { node: 'disk', edge: 'object' },
  'phone-history': { node: 'disk', edge: 'object' },
  'phone-delivered': { node: 'disk', edge: 'object' },
  'phone-subscribers': { node: 'memory', edge: 'object' },
  'phone-threads': { node: 'memory', edge: 'object' },
  push: { node: 'disk', edge: 'object' },
  notifications: { node: 'memory', edge: 'object' },
  'voice-callers': { node: 'memory', edge: 'object' },
  reach: { node: 'disk', edge: 'memory' },
  'mcp-sessions': { node: 'disk', edge: 'object' },
  'chat-turns': { node: 'disk', edge: 'object' },
  mirror: { node: 'disk', edge: 'object' },
};

/** Version of the stored records: grows when an earlier version of the relay could not use what this one writes. */
export const SCHEMA_VERSION = 1;

/** The stores of a relay on `runtime`: the durable ones behind `executor`, or without one all in memory. */
export function createStores(runtime: Runtime, executor?: SqlExecutor): Stores {
  const storage = createStorage();
  if (executor) createTable(executor);
  if (executor?.isSynchronous) createLookups(executor);
  const commits = executor && createGroupCommit(executor);
  for (const [store, places] of Object.entries(PLACES)) {
    const isDurable = commits !== undefined && places[runtime] !== 'memory';
    storage.mount(store, isDurable ? sqlDriver({ commits, store }) : memoryDriver());
  }
  return {
    durable: executor !== undefined,
    failing: (commits?.failing ?? new Map()) as Stores['failing'],
    open: <K extends StoreName>(name: K) => {
      const store = prefixStorage(storage, name) as unknown as Store<K>;
      const isDurable = commits !== undefined && PLACES[name][runtime] !== 'memory';
      if (!isDurable || !executor) return store;
      const lookups = executor.isSynchronous ? lookupsOf(executor, name) : undefined;
      return Object.assign(store, { entries: (base?: string) => readEntries(commits, name, base), lookups });
    },
    ...(commits && executor.snapshot && { snapshot: (path: string) => commits.snapshot(path) }),
    close: () => commits?.close(),
  };
}
