import { createStorage, prefixStorage, type Storage, type StorageValue } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { type SqlExecutor, sqlDriver } from './sql-driver.ts';

/**
 * Which stores outlive the process is decided here and nowhere else (contract 00, "What survives a restart").
 * What each one holds is listed in `storage/README.md`.
 */
const DURABLE = [
  'sessions',
  'pairing',
  'sockets',
  'bridge',
  'desktop',
  'media',
  'phone',
  'phone-replies',
  'phone-subscribers',
] as const;

export type StoreName = (typeof DURABLE)[number];
export type Store<T extends StorageValue = StorageValue> = Storage<T>;

export interface Stores {
  open<T extends StorageValue>(name: StoreName): Store<T>;
  /** Whether what is written survives the process. */
  readonly durable: boolean;
  close(): void;
}

/** The relay's stores: in SQLite behind `executor`, or, without one, in memory. */
export function createStores(executor?: SqlExecutor): Stores {
  const storage = createStorage();
  for (const store of DURABLE) storage.mount(store, executor ? sqlDriver({ executor, store }) : memoryDriver());
  return {
    durable: executor !== undefined,
    open: <T extends StorageValue>(name: StoreName) => prefixStorage<T>(storage as unknown as Storage<T>, name),
    close: () => executor?.close?.(),
  };
}
