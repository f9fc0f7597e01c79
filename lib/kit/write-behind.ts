import type { Storage, StorageValue } from 'unstorage';
import { describeError } from '../errors.ts';
import type { Warnings } from './entries.ts';

export interface WriteBehindOptions<T extends StorageValue> {
  store: Storage<T>;
  log: Warnings;
  /** Names the state in a warning, as in "the limiter could not be saved". */
  name: string;
}

/**
 * Writes state in the background, once at the end of the turn that changed it: an object at the edge may be evicted
 * after that turn, and no timer keeps it awake (contract 12 §6). A failed write is retried with the next change. The
 * owner bounds the number of keys.
 */
export function createWriteBehind<T extends StorageValue>({ store, log, name }: WriteBehindOptions<T>) {
  let changed = new Map<string, () => T | null>();
  let isScheduled = false;

  async function settle(writes: Promise<void>[]): Promise<void> {
    const results = await Promise.allSettled(writes);
    const failure = results.find((result) => result.status === 'rejected');
    if (failure) log.warn(`${name} could not be saved: ${describeError(failure.reason)}`);
  }

  async function write(key: string, value: () => T | null): Promise<void> {
    const current = value();
    try {
      await (current === null ? store.removeItem(key) : store.setItem(key, current));
    } catch (error) {
      if (!changed.has(key)) changed.set(key, value);
      throw error;
    }
  }

  function flush(): void {
    isScheduled = false;
    const entries = changed;
    // Clearing the map instead would link its old table, and all in it, to the next one (V8, 2026-11).
    changed = new Map();
    void settle([...entries].map(([key, value]) => write(key, value)));
  }

  return {
    /** Marks a key as changed. `value` is called at the time of the write; null removes the key. */
    save(key: string, value: () => T | null): void {
      changed.set(key, value);
      if (isScheduled) return;
      isScheduled = true;
      queueMicrotask(flush);
    },

    /** Removes every key. */
    clear(): void {
      changed.clear();
      void settle([store.clear()]);
    },
  };
}
