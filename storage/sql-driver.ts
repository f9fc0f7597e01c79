import { defineDriver } from 'unstorage';

/** What the driver needs of a SQLite: synchronous statements, each durable when it returns. */
export interface SqlExecutor {
  run(sql: string, ...values: string[]): void;
  all(sql: string, ...values: string[]): Record<string, unknown>[];
  close?(): void;
}

const SCHEMA =
  'CREATE TABLE IF NOT EXISTS items (store TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (store, key)) WITHOUT ROWID';
/** Takes all stores away; whoever opens one makes them anew. */
export const DROP = 'DROP TABLE IF EXISTS items';

const strict = new TextDecoder('utf-8', { fatal: true });
const lenient = new TextDecoder();

/**
 * The text of a value, or null for one that is damaged. Text is read as bytes: libsql ends the whole process at one
 * that is no UTF-8.
 */
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

/**
 * One named store in a SQLite table. The statement runs before `setItem` first yields, so writes reach the disk in
 * the order they were asked for, and a rejected promise means that nothing was written.
 */
export const sqlDriver = defineDriver(({ executor, store }: { executor: SqlExecutor; store: string }) => {
  executor.run(SCHEMA);
  return {
    name: 'svc-sql',
    options: { executor, store },
    hasItem: (key) => executor.all('SELECT 1 FROM items WHERE store = ? AND key = ?', store, key).length > 0,
    getItem: (key) =>
      textOf(
        executor.all('SELECT CAST(value AS BLOB) AS value FROM items WHERE store = ? AND key = ?', store, key)[0]
          ?.value,
      ),
    setItem: (key, value) =>
      executor.run(
        'INSERT INTO items (store, key, value) VALUES (?, ?, ?) ON CONFLICT (store, key) DO UPDATE SET value = excluded.value',
        store,
        key,
        value,
      ),
    removeItem: (key) => executor.run('DELETE FROM items WHERE store = ? AND key = ?', store, key),
    getKeys: (base = '') =>
      executor
        .all(`SELECT CAST(key AS BLOB) AS key FROM items WHERE ${BELOW} ORDER BY key`, store, base, base)
        // A damaged key stays a key: it is found to name nothing, and is reported by whoever asks.
        .map((row) => lenient.decode(row.key as Uint8Array)),
    clear: (base = '') => executor.run(`DELETE FROM items WHERE ${BELOW}`, store, base, base),
  };
});
