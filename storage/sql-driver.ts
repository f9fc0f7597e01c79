import { defineDriver } from 'unstorage';
import type { GroupCommit } from './group-commit.ts';

export type Row = Record<string, unknown>;

/** The part of a runtime's SQLite that the stores need. Statements run synchronously. */
export interface SqlExecutor {
  run(sql: string, ...values: string[]): void;
  all(sql: string, ...values: string[]): Row[];
  /** Runs `work` as one transaction, durable on return. Throws when it fails, and then nothing has changed. */
  transaction(work: () => void): void;
  /**
   * The same, but the sync to disk does not stop the event loop: durable when it resolves. Nothing else may be called
   * meanwhile, except `transaction` and `close`, which wait for it.
   */
  commitLater?(work: () => void): Promise<void>;
  /** Tidies up after a while without writes, off the event loop. Nothing else may be called meanwhile, as above. */
  maintain?(): Promise<void>;
  /** Writes what is committed to an empty file, as a database of its own. Nothing else may be called meanwhile, as above. */
  snapshot?(path: string): Promise<void>;
  /** Calls `run` when the current turn of the event loop ends. */
  atTurnEnd(run: () => void): void;
  close?(): void;
}

const SCHEMA =
  'CREATE TABLE IF NOT EXISTS items (store TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (store, key)) WITHOUT ROWID';

const strict = new TextDecoder('utf-8', { fatal: true });
const lenient = new TextDecoder();

/** The text of a value, or null if it is damaged. Text is read as bytes: libsql aborts the process at invalid UTF-8. */
function textOf(bytes: unknown): string | null {
  if (bytes === undefined || bytes === null) return null;
  try {
    return strict.decode(bytes as Uint8Array);
  } catch {
    return null;
  }
}

const PUT =
  'INSERT INTO items (store, key, value) VALUES (?, ?, ?) ON CONFLICT (store, key) DO UPDATE SET value = excluded.value';

/** One value of a store, as JSON text. */
export type StoredRow = [store: string, key: string, value: string];

/** Writes rows as one transaction, durable on return. */
export const putRows = (executor: SqlExecutor, rows: readonly StoredRow[]): void =>
  executor.transaction(() => {
    for (const row of rows) executor.run(PUT, ...row);
  });

/** The row of a `SELECT store, key, value` with blobs; null when a part of it is damaged. */
export function storedRow({ store, key, value }: Row): StoredRow | null {
  const row = [textOf(store), textOf(key), textOf(value)];
  return row.every((text) => text !== null) ? (row as StoredRow) : null;
}

/** Compares the start of a key literally: LIKE would take `_` and `%` of a prefix for wildcards. */
const BELOW = 'store = ? AND substr(key, 1, length(?)) = ?';

export const createTable = (executor: SqlExecutor): void => executor.run(SCHEMA);

/** Every key of a store with its value, by one statement. A value that is damaged, or no JSON, reads as null. */
export async function readEntries(commits: GroupCommit, store: string): Promise<[key: string, value: unknown][]> {
  const sql = 'SELECT CAST(key AS BLOB) AS key, CAST(value AS BLOB) AS value FROM items WHERE store = ? ORDER BY key';
  return (await commits.read(sql, store)).map(({ key, value }) => [
    lenient.decode(key as Uint8Array),
    parsed(textOf(value)),
  ]);
}

function parsed(text: string | null): unknown {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

export interface SqlDriverOptions {
  commits: GroupCommit;
  store: string;
}

/**
 * One named store in a SQLite table. Writes are queued before `setItem` first yields, so they reach the disk in the
 * order of the calls; a rejected promise means that nothing was written.
 */
export const sqlDriver = defineDriver(({ commits, store }: SqlDriverOptions) => {
  return {
    name: 'svc-sql',
    options: { commits, store },
    hasItem: async (key) =>
      (await commits.read('SELECT 1 FROM items WHERE store = ? AND key = ?', store, key)).length > 0,
    async getItem(key) {
      const sql = 'SELECT CAST(value AS BLOB) AS value FROM items WHERE store = ? AND key = ?';
      return textOf((await commits.read(sql, store, key))[0]?.value);
    },
    setItem: (key, value) => commits.write(PUT, store, key, value),
    removeItem: (key) => commits.write('DELETE FROM items WHERE store = ? AND key = ?', store, key),
    async getKeys(base = '') {
      const sql = `SELECT CAST(key AS BLOB) AS key FROM items WHERE ${BELOW} ORDER BY key`;
      // A damaged key is still listed; its value reads as null, which the caller reports.
      return (await commits.read(sql, store, base, base)).map((row) => lenient.decode(row.key as Uint8Array));
    },
    clear: (base = '') => commits.write(`DELETE FROM items WHERE ${BELOW}`, store, base, base),
  };
});
