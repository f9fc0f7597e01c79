import { defineDriver } from 'unstorage';

/** What the driver needs of a SQLite: synchronous statements, each durable when it returns. */
export interface SqlExecutor {
  run(sql: string, ...values: string[]): void;
  all(sql: string, ...values: string[]): Record<string, unknown>[];
  close?(): void;
}

const SCHEMA =
  'CREATE TABLE IF NOT EXISTS items (store TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (store, key)) WITHOUT ROWID';

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
      (executor.all('SELECT value FROM items WHERE store = ? AND key = ?', store, key)[0]?.value as string) ?? null,
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
        .all(`SELECT key FROM items WHERE ${BELOW} ORDER BY key`, store, base, base)
        .map((row) => row.key as string),
    clear: (base = '') => executor.run(`DELETE FROM items WHERE ${BELOW}`, store, base, base),
  };
});
