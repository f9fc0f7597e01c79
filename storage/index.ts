import { createStorage, type Driver, prefixStorage } from 'unstorage';
import type { Backend } from './backend.ts';
import { memoryBackend } from './memory.ts';
import type { Store, StoreName, StoreSchema, Stores } from './schema.ts';

export type Runtime = 'node' | 'edge';

/**
 * Where each store lives: in the state file (`disk`), in the Durable Object's SQLite (`object`), or in the memory of
 * the process. A sleeping object must keep even state that a restart may forget (contract 00, "What survives a restart").
 */
export const LOCATIONS: Record<StoreName, { node: 'disk' | 'memory'; edge: 'object' | 'memory' }> = {
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

/** The stores of a relay on `runtime`: the durable ones in `backend`, the others in the memory of the process. */
export function createStores(runtime: Runtime, backend: Backend = memoryBackend()): Stores {
  const memory = memoryBackend();
  const backendOf = (store: StoreName) => (LOCATIONS[store][runtime] === 'memory' ? memory : backend);
  const storage = createStorage();
  const drivers = new Map<StoreName, Driver>();
  for (const store of Object.keys(LOCATIONS) as StoreName[]) {
    const driver = backendOf(store).driver(store);
    drivers.set(store, driver);
    storage.mount(store, driver);
  }
  const { snapshot } = backend;
  return {
    durable: backend.durable,
    failing: backend.failing as Stores['failing'],
    open: <K extends StoreName>(name: K) => {
      const { entries, lookups, batch } = backendOf(name);
      const store = prefixStorage(storage, name) as unknown as Store<K>;
      const direct = directWrites(store, drivers.get(name) as Driver);
      const read = entries && { entries: (base?: string) => entries(name, base) };
      return Object.assign(store, { ...direct, ...read, lookups: lookups?.(name), batch });
    },
    ...(snapshot && { snapshot }),
    close: () => backend.close(),
  };
}

/** A key that unstorage passes to a driver as it is. */
const PLAIN = /^[\w-]+$/;

/**
 * Writes an object under a plain key without the layers of unstorage, which normalize the key four times: 3 of the 26 µs that
 * a row costs, eight in a transaction (2026-11).
 */
function directWrites<K extends StoreName>(store: Store<K>, driver: Driver) {
  const { setItem, removeItem } = store;
  return {
    async setItem(key: string, value: StoreSchema[K], options?: object): Promise<void> {
      const isDirect = PLAIN.test(key) && typeof value === 'object' && value !== null;
      return isDirect ? driver.setItem?.(key, JSON.stringify(value), {}) : setItem(key, value as never, options);
    },
    async removeItem(key: string, options?: object): Promise<void> {
      return PLAIN.test(key) && options === undefined ? driver.removeItem?.(key, {}) : removeItem(key, options);
    },
  };
}
