import type { Entry, Lookups, StoreName } from './schema.ts';
import { parsed, type Row, type SqlExecutor, textOf } from './sql-driver.ts';

/** A member of a JSON value in SQL; null for a value that is not JSON. */
const member = (name: string) => (value: string) =>
  `CASE WHEN json_valid(${value}) THEN json_extract(${value}, '$.${name}') END`;

/**
 * Stands for any text with characters beyond ASCII, because SQLite lowercases ASCII only. `find` always includes it.
 */
const ANY = '*';
/** A text in lower case. */
const folded = (name: string) => (value: string) => {
  const text = member(name)(value);
  return `CASE WHEN ${text} GLOB '*[^ -~]*' THEN '${ANY}' ELSE lower(${text}) END`;
};

/**
 * Fields by which values are found in a store that is not read as a whole. A value has one row for each field that is
 * not null.
 */
const LOOKUPS: Partial<Record<StoreName, Record<string, (value: string) => string>>> = {
  sessions: { prefix: member('token_prefix'), device: folded('device_id'), expires: member('expires_at') },
};

const TABLE =
  'CREATE TABLE lookups (store TEXT NOT NULL, name TEXT NOT NULL, value NOT NULL, key TEXT NOT NULL, PRIMARY KEY (store, name, value, key)) WITHOUT ROWID';

/**
 * Statements that maintain the rows of one lookup. Rows are written only when they change, which few writes of a value
 * cause.
 */
function statementsFor(store: string, name: string, of: (value: string) => string): string[] {
  const put = (from: string, key: string) =>
    `INSERT OR IGNORE INTO lookups SELECT '${store}', '${name}', ${of(from)}, ${key}`;
  const drop = `DELETE FROM lookups WHERE store = '${store}' AND name = '${name}' AND value = ${of('old.value')} AND key = old.key;`;
  const add = `${put('new.value', 'new.key')} WHERE ${of('new.value')} IS NOT NULL;`;
  const trigger = (event: string, when: string, work: string) =>
    `CREATE TRIGGER lookups_${store}_${name}_${event.toLowerCase()} AFTER ${event} ON items WHEN ${when} BEGIN ${work} END`;
  return [
    `${put('value', 'key')} FROM items WHERE store = '${store}' AND ${of('value')} IS NOT NULL`,
    trigger('INSERT', `new.store = '${store}'`, add),
    trigger('UPDATE', `new.store = '${store}' AND ${of('old.value')} IS NOT ${of('new.value')}`, drop + add),
    trigger('DELETE', `old.store = '${store}'`, drop),
  ];
}

/** Creates the lookups of all stored values, once. */
export function createLookups(executor: SqlExecutor): void {
  if (executor.all("SELECT 1 FROM sqlite_master WHERE name = 'lookups'").length > 0) return;
  executor.transaction(() => {
    executor.run(TABLE);
    for (const [store, names] of Object.entries(LOOKUPS)) {
      for (const [name, of] of Object.entries(names)) {
        for (const sql of statementsFor(store, name, of)) executor.run(sql);
      }
    }
  });
}

/** The lookups of a store; undefined for one that is read as a whole. */
export function lookupsOf(executor: SqlExecutor, store: StoreName): Lookups | undefined {
  if (!LOOKUPS[store]) return undefined;
  const entries = (rows: Row[]): Entry[] => rows.map(({ key, value }) => [String(key), parsed(textOf(value))]);
  const columns = 'items.key AS key, CAST(items.value AS BLOB) AS value';
  const joined = `SELECT ${columns} FROM lookups JOIN items ON items.store = lookups.store AND items.key = lookups.key WHERE lookups.store = ? AND name = ?`;
  return {
    get: (key) => entries(executor.all(`SELECT ${columns} FROM items WHERE store = ? AND key = ?`, store, key)),
    find: (name, value) => entries(executor.all(`${joined} AND lookups.value IN (?, '${ANY}')`, store, name, value)),
    startingWith: (name, start) =>
      entries(
        executor.all(
          `${joined} AND lookups.value >= ? AND lookups.value < ?`,
          store,
          name,
          start,
          `${start}\u{10ffff}`,
        ),
      ),
    upTo: (name, end) =>
      entries(executor.all(`${joined} AND lookups.value <= CAST(? AS REAL)`, store, name, String(end))),
    least(name, above) {
      const sql = 'SELECT min(value) AS least FROM lookups WHERE store = ? AND name = ? AND value > CAST(? AS REAL)';
      const least = executor.all(sql, store, name, String(above))[0]?.least;
      return least === null || least === undefined ? null : Number(least);
    },
    count: (name) =>
      Number(executor.all('SELECT count(*) AS count FROM lookups WHERE store = ? AND name = ?', store, name)[0]?.count),
  };
}
