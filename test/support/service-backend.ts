import { defineDriver } from 'unstorage';
import { type Deferred, deferred } from '../../lib/kit/deferred.ts';
import type { Backend } from '../../storage/backend.ts';

/** Sets a value, or removes it (null), or removes all whose keys begin with `below`. */
type Change = { store: string } & ({ key: string; value: string | null } | { below: string });

/** A database behind a network: every call takes a while, and a list of changes is one transaction. */
export interface KeyValueService {
  get(store: string, key: string): Promise<string | null>;
  keys(store: string): Promise<string[]>;
  transact(changes: readonly Change[]): Promise<void>;
}

/** Such a service, in memory. A change for which `isRefused` makes its transaction fail. */
export function createService(isRefused: (change: Change) => boolean): KeyValueService {
  const values = new Map<string, Map<string, string>>();
  const valuesOf = (store: string) => {
    const own = values.get(store) ?? new Map<string, string>();
    values.set(store, own);
    return own;
  };
  const call = async <T>(work: () => T): Promise<T> => {
    await new Promise(setImmediate);
    return work();
  };
  return {
    get: (store, key) => call(() => valuesOf(store).get(key) ?? null),
    keys: (store) => call(() => [...valuesOf(store).keys()]),
    transact: (changes) =>
      call(() => {
        if (changes.some(isRefused)) throw new Error('the service has refused it');
        for (const change of changes) {
          const own = valuesOf(change.store);
          if ('below' in change) {
            for (const key of [...own.keys()]) if (key.startsWith(change.below)) own.delete(key);
          } else if (change.value === null) own.delete(change.key);
          else own.set(change.key, change.value);
        }
      }),
  };
}

/** A backend over a service: the worked example of `storage/README.md`. */
export function serviceBackend(service: KeyValueService): Backend {
  const failing = new Map<string, unknown>();
  let last: Promise<unknown> = Promise.resolve();
  /** Changes that become durable together, and their outcome. */
  let batch: { changes: Change[]; written: Deferred } | undefined;

  /** Calls keep the order in which they were asked for. */
  function inOrder<T>(step: () => Promise<T>): Promise<T> {
    const result = last.then(step);
    last = result.catch(() => {});
    return result;
  }

  /** Reads behind the writes of a batch that is being put together. */
  const read = async <T>(step: () => Promise<T>): Promise<T> => {
    while (batch) await undefined;
    return inOrder(step);
  };

  const transact = (changes: readonly Change[]): Promise<void> =>
    inOrder(async () => {
      try {
        await service.transact(changes);
        failing.clear();
      } catch (error) {
        for (const { store } of changes) failing.set(store, error);
        throw error;
      }
    });

  function write(change: Change): Promise<void> {
    if (!batch) return transact([change]);
    batch.changes.push(change);
    return batch.written.promise;
  }

  return {
    durable: true,
    failing,
    driver: defineDriver((store: string) => ({
      name: 'service',
      hasItem: async (key) => (await read(() => service.get(store, key))) !== null,
      getItem: (key) => read(() => service.get(store, key)),
      getKeys: (base = '') => read(async () => (await service.keys(store)).filter((key) => key.startsWith(base))),
      setItem: (key, value) => write({ store, key, value }),
      removeItem: (key) => write({ store, key, value: null }),
      clear: (below = '') => write({ store, below }),
    })),
    batch(work) {
      if (batch) return work();
      const changes: Change[] = [];
      const written = deferred();
      batch = { changes, written };
      try {
        return work();
      } finally {
        batch = undefined;
        if (changes.length > 0) transact(changes).then(written.resolve, written.reject);
      }
    },
    close() {},
  };
}
