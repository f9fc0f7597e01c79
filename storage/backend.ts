import type { Driver } from 'unstorage';
import type { Entry, Lookups, StoreName } from './schema.ts';

/**
 * Where a runtime keeps its durable stores. A backend is open, and alone on its state, from its creation until `close`.
 * One suite runs on every backend (`test/storage/drivers.test.ts`).
 */
export interface Backend {
  /** True if it survives the process. */
  readonly durable: boolean;
  /** Stores whose writes have failed since the last write that did not, each with the reason. */
  readonly failing: ReadonlyMap<string, unknown>;
  /**
   * The driver of one store. A write is asked for before the call returns, so that writes keep the order of the calls;
   * its promise resolves once the value is durable, and rejects when nothing has changed. Values are texts.
   */
  driver(store: string): Driver;
  /**
   * Runs `work`, which may write to any store but must not wait. Its writes become durable together or not at all, and
   * their promises settle alike. Writes made before it threw an error stay. Batches may be nested.
   */
  batch<T>(work: () => T): T;
  /**
   * Reads a whole store, or the keys that begin with `base`, in one step. Without this function, stores are read key by
   * key.
   */
  entries?(store: string, base?: string): Promise<Entry[]>;
  /**
   * Reads single values synchronously, so that the store need not be in memory; undefined for a store that is held
   * there.
   */
  lookups?(store: StoreName): Lookups | undefined;
  /** Writes a copy of everything to an empty file, as a database of its own. */
  snapshot?(path: string): Promise<void>;
  /** Commits all writes and releases the state. */
  close(): void;
}
