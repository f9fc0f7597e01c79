import type { Storage, StorageValue } from 'unstorage';
import * as v from 'valibot';
import type { Backed } from '../../storage/schema.ts';

/** The part of a log that is used here. */
export interface Warnings {
  warn(message: string): void;
}

/**
 * Every key of a store, or every key that begins with `base`, with its value, or null if that cannot be read. One
 * statement if the driver supports it.
 */
export async function entriesOf<T extends StorageValue>(
  store: Storage<T> & Backed,
  base = '',
): Promise<[key: string, value: unknown][]> {
  if (store.entries) return store.entries(base);
  const entries: [string, unknown][] = [];
  for (const key of (await store.getKeys()).filter((key) => key.startsWith(base)))
    entries.push([key, await store.getItem(key)]);
  return entries;
}

/** Reads stored values by a schema; undefined for a value that does not match. */
export const readAs =
  <R>(schema: v.GenericSchema<unknown, R>) =>
  (value: unknown): R | undefined => {
    const read = v.safeParse(schema, value);
    return read.success ? read.output : undefined;
  };

/** A list without its damaged items. */
export const listOf = <T>(item: v.GenericSchema<T>) =>
  v.pipe(
    v.array(v.unknown()),
    v.transform((list) => list.filter((value) => v.is(item, value))),
  );

interface LoadOptions<T extends StorageValue, R> {
  store: Storage<T> & Backed;
  log: Warnings;
  /** Parses a value; undefined if it is damaged. */
  read(value: unknown, key: string): R | undefined;
  base?: string;
}

/**
 * Every record of a store, or every one whose key begins with `base`. Damaged ones are removed or skipped, with a
 * warning.
 */
export async function loadAll<T extends StorageValue, R>(
  { store, log, read, base }: LoadOptions<T, R>,
  damaged: 'removed' | 'skipped' = 'removed',
): Promise<[key: string, record: R][]> {
  const loaded: [string, R][] = [];
  for (const [key, value] of await entriesOf(store, base)) {
    const record = read(value, key);
    if (record !== undefined) loaded.push([key, record]);
    else {
      log.warn(`${damaged} a stored record that cannot be read`);
      if (damaged === 'removed') await store.removeItem(key);
    }
  }
  return loaded;
}

/** Like `loadAll`, in the order of creation. Damaged records are skipped. */
export async function loadInOrder<T extends StorageValue, R extends { seq: number }>(
  options: LoadOptions<T, R>,
): Promise<R[]> {
  const loaded = await loadAll(options, 'skipped');
  return loaded.map(([, record]) => record).sort((a, b) => a.seq - b.seq);
}

/**
 * Runs `work`, which writes synchronously: its writes to this and other durable stores become durable together, or not
 * at all (`storage/backend.ts`).
 */
export const batched = <T>(store: Backed, work: () => T): T => (store.batch ? store.batch(work) : work());
