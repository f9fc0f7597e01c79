import type { Driver } from 'unstorage';
import type { Entry, Lookups, StoreName } from './schema.ts';

/**
 * Where a runtime keeps its durable stores. A backend is open, and the only one on its state, from when it is made until
 * `close`. One suite holds each of them to what is said here (`test/storage/drivers.test.ts`).
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
   * Runs `work`, which writes to whatever stores and does not wait. Its writes become durable together or not at all: all
   * of their promises settle alike. Writes made before it threw an error stay. Batches may be nested.
   */
  batch<T>(work: () => T): T;
  /** Reads a store, or the keys that begin with `base`, at once. Without it, it is read key by key. */
  entries?(store: string, base?: string): Promise<Entry[]>;
  /** Where single values can be read at once, so that the store need not be in memory; undefined for a store that is. */
  lookups?(store: StoreName): Lookups | undefined;
  /** Writes a copy of everything to an empty file, as a database of its own. */
  snapshot?(path: string): Promise<void>;
  /** Makes durable what has been written, and lets the state go. */
  close(): void;
}
