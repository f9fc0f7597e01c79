import { createStorage } from 'unstorage';
import type { Backend } from './backend.ts';
import { memoryBackend } from './memory.ts';
import type { Store, StoreName, Stores } from './schema.ts';

export type Runtime = 'node' | 'edge';

/**
 * Where each store lives: in the state file (`disk`), in the Durable Object's SQLite (`object`), or in the memory of
 * the process. A sleeping object must keep even state that a restart may forget (contract 00, "What survives a restart").
 */
export const LOCATIONS: Record<StoreName, { node: 'disk' | 'memory'; edge: 'object' | 'memory' }> = {
  sessions: { node: 'disk', edge: 'object' },
  'ended-sessions': { node: 'disk', edge: 'object' },
  clock: { node: 'disk', edge: 'memory' },
  restored: { node: 'disk', edge: 'memory' },
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
  // One for each store: below mounts of a shared one, unstorage normalizes a key four times, and a write takes 4 µs instead of 2 (2026-11).
  const storages = new Map(
    (Object.keys(LOCATIONS) as StoreName[]).map((name) => [
      name,
      createStorage({ driver: backendOf(name).driver(name) }),
    ]),
  );
  const { snapshot } = backend;
  return {
    durable: backend.durable,
    failing: backend.failing as Stores['failing'],
    open: <K extends StoreName>(name: K) => {
      const { entries, lookups, batch } = backendOf(name);
      const read = entries && { entries: (base?: string) => entries(name, base) };
      return { ...storages.get(name), ...read, lookups: lookups?.(name), batch } as unknown as Store<K>;
    },
    ...(snapshot && { snapshot }),
    close: () => backend.close(),
  };
}
