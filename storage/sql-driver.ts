import { defineDriver } from 'unstorage';
import type { GroupCommit } from './group-commit.ts';

/** The part of a runtime's SQLite that the stores need. Statements run synchronously. */
export interface SqlExecutor {
  run(sql: string, ...values: string[]): void;
  all(sql: string, ...values: string[]): Record<string, unknown>[];
  /** Runs `work` as one transaction, durable on return. Throws when it fails, and then nothing has changed. */
  transaction(work: () => void): void;
  /** Calls `run` when the current turn of the event loop ends. */
  atTurnEnd(run: () => void): void;
  close?(): void;
}

const SCHEMA =
  'CREATE TABLE IF NOT EXISTS items (store TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (store, key)) WITHOUT ROWID';
/** Drops all stores; opening one creates the table again. */
export const DROP = 'DROP TABLE IF EXISTS items';

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

/** Compares the start of a key literally: LIKE would take `_` and `%` of a prefix for wildcards. */
const BELOW = 'store = ? AND substr(key, 1, length(?)) = ?';

export const createTable = (executor: SqlExecutor): void => executor.run(SCHEMA);

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
    hasItem: (key) => commits.read('SELECT 1 FROM items WHERE store = ? AND key = ?', store, key).length > 0,
    getItem: (key) =>
      textOf(
        commits.read('SELECT CAST(value AS BLOB) AS value FROM items WHERE store = ? AND key = ?', store, key)[0]
          ?.value,
      ),
    setItem: (key, value) =>
      commits.write(
        'INSERT INTO items (store, key, value) VALUES (?, ?, ?) ON CONFLICT (store, key) DO UPDATE SET value = excluded.value',
        store,
        key,
        value,
      ),
    removeItem: (key) => commits.write('DELETE FROM items WHERE store = ? AND key = ?', store, key),
    getKeys: (base = '') =>
      commits
        .read(`SELECT CAST(key AS BLOB) AS key FROM items WHERE ${BELOW} ORDER BY key`, store, base, base)
        // A damaged key is still listed; its value reads as null, which the caller reports.
        .map((row) => lenient.decode(row.key as Uint8Array)),
    clear: (base = '') => commits.write(`DELETE FROM items WHERE ${BELOW}`, store, base, base),
  };
});
