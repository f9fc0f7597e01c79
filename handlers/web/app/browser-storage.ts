import { createStore, type UseStore } from 'idb-keyval';

/** A store of idb-keyval. If the browser blocks storage, its calls reject; some browsers throw at once. */
export function openStore(database: string, name: string): UseStore {
  const store = createStore(database, name);
  return async (mode, callback) => store(mode, callback);
}

export type Channel = Pick<BroadcastChannel, 'onmessage' | 'postMessage' | 'close'>;

/**
 * A channel to the other tabs and the service worker. A browser that blocks storage may have none, in which case nobody
 * listens.
 */
export function openChannel(name: string): Channel {
  try {
    return new BroadcastChannel(name);
  } catch {
    return { onmessage: null, postMessage: () => {}, close: () => {} };
  }
}
