import { defineDriver } from 'unstorage';
import type { GroupCommit, Statement } from './group-commit.ts';

export type Row = Record<string, unknown>;

/** The part of a runtime's SQLite that the stores need. Statements run synchronously. */
export interface SqlExecutor {
  /** Characters that a row holds, where the platform limits it: the rest of a longer value goes into further rows. */
  readonly maxText?: number;
  /** Reads and writes complete when their calls return, so that single values can be read on demand. */
  readonly isSynchronous?: boolean;
  run(sql: string, ...values: string[]): void;
  all(sql: string, ...values: string[]): Row[];
  /** Runs `work` as one transaction, durable on return. Throws when it fails, having changed nothing. */
  transaction(work: () => void): void;
  /**
   * As `transaction`, but the sync to disk does not block the event loop: durable when it resolves. Nothing else may be
   * called meanwhile, except `transaction` and `close`, which wait for it.
   */
  commitLater?(work: () => void): Promise<void>;
  /**
   * Runs maintenance off the event loop, after a while without writes. Nothing else may be called meanwhile, as above.
   */
  maintain?(): Promise<void>;
  /** Writes what is committed to an empty file, as a database of its own. Nothing else may be called meanwhile, as above. */
  snapshot?(path: string): Promise<void>;
  /** Calls `run` when the current turn of the event loop ends. */
  atTurnEnd(run: () => void): void;
  close?(): void;
}

const SCHEMA =
  'CREATE TABLE IF NOT EXISTS items (store TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (store, key)) WITHOUT ROWID';

/**
 * A value longer than `maxText`. Its row in `items` holds `#`, with which no JSON begins, and the number of its parts.
 * The parts are removed with the row or when it is overwritten.
 */
const PARTS = [
  'CREATE TABLE IF NOT EXISTS parts (store TEXT NOT NULL, key TEXT NOT NULL, part INTEGER NOT NULL, value TEXT NOT NULL, PRIMARY KEY (store, key, part)) WITHOUT ROWID',
  ...['UPDATE', 'DELETE'].map(
    (event) =>
      `CREATE TRIGGER IF NOT EXISTS parts_${event.toLowerCase()} AFTER ${event} ON items WHEN substr(old.value, 1, 1) = '#' ` +
      'BEGIN DELETE FROM parts WHERE store = old.store AND key = old.key; END',
  ),
];

const strict = new TextDecoder('utf-8', { fatal: true });
const lenient = new TextDecoder();

/** The text of a value, or null if it is damaged. Text is read as bytes: libsql aborts the process at invalid UTF-8. */
export function textOf(bytes: unknown): string | null {
  if (bytes === undefined || bytes === null) return null;
  try {
    return strict.decode(bytes as Uint8Array);
  } catch {
    return null;
  }
}

const PUT =
  'INSERT INTO items (store, key, value) VALUES (?, ?, ?) ON CONFLICT (store, key) DO UPDATE SET value = excluded.value';

const PUT_PART = 'INSERT INTO parts (store, key, part, value) VALUES (?, ?, ?, ?)';

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

export function createTable(executor: SqlExecutor): void {
  executor.run(SCHEMA);
  if (executor.maxText !== undefined) for (const sql of PARTS) executor.run(sql);
}

const BLOBS = 'CAST(key AS BLOB) AS key, CAST(value AS BLOB) AS value';
const ENTRIES = `SELECT ${BLOBS}, -1 AS part FROM items WHERE store = ?`;
const ALL_PARTS = `SELECT ${BLOBS}, part FROM parts WHERE store = ?`;

/**
 * Every key of a store, or those that begin with `base`, with its value, by one statement. A value that is damaged or
 * not JSON reads as null.
 */
export async function readEntries(
  commits: GroupCommit,
  store: string,
  base = '',
): Promise<[key: string, value: unknown][]> {
  const [below, values] =
    base === '' ? ['', [store]] : [' AND key >= ? AND key < ?', [store, base, `${base}\u{10ffff}`]];
  const rows =
    commits.maxText === undefined
      ? await commits.read(`${ENTRIES}${below} ORDER BY key`, ...values)
      : await commits.read(
          `${ENTRIES}${below} UNION ALL ${ALL_PARTS}${below} ORDER BY key, part`,
          ...values,
          ...values,
        );
  const texts: [key: string, text: string | null, parts: (string | null)[]][] = [];
  for (const { key, value, part } of rows) {
    if (Number(part) < 0) texts.push([lenient.decode(key as Uint8Array), textOf(value), []]);
    else texts.at(-1)?.[2].push(textOf(value));
  }
  return texts.map(([key, text, parts]) => [key, parsed(joined(text, parts))]);
}

/** Splits a long value into parts of at most `max` characters, never within a surrogate pair. */
function partsOf(text: string, max: number): string[] {
  const parts: string[] = [];
  for (let at = 0; at < text.length; ) {
    const isTorn = /[\ud800-\udbff]/.test(text.charAt(at + max - 1));
    const end = at + max - (isTorn ? 1 : 0);
    parts.push(text.slice(at, end));
    at = end;
  }
  return parts;
}

/** The text of a row, including its parts if any; null if some of it is missing or damaged. */
function joined(text: string | null, parts: readonly (string | null)[]): string | null {
  if (!text?.startsWith('#')) return text;
  const isWhole = parts.length === Number(text.slice(1)) && !parts.includes(null);
  return isWhole ? parts.join('') : null;
}

/** The value of JSON text; null for anything else. */
export function parsed(text: string | null): unknown {
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
      const sql = 'SELECT CAST(value AS BLOB) AS value FROM';
      const where = 'WHERE store = ? AND key = ?';
      // Both in this turn: no write comes between them.
      const [rows, parts] = await Promise.all([
        commits.read(`${sql} items ${where}`, store, key),
        commits.maxText === undefined ? [] : commits.read(`${sql} parts ${where} ORDER BY part`, store, key),
      ]);
      return joined(
        textOf(rows[0]?.value),
        parts.map(({ value }) => textOf(value)),
      );
    },
    setItem(key, value) {
      const { maxText = Number.POSITIVE_INFINITY } = commits;
      if (value.length <= maxText) return commits.write(PUT, store, key, value);
      const parts = partsOf(value, maxText);
      return commits.writeAll([
        { sql: PUT, values: [store, key, `#${parts.length}`] },
        ...parts.map((part, n): Statement => ({ sql: PUT_PART, values: [store, key, String(n), part] })),
      ]);
    },
    removeItem: (key) => commits.write('DELETE FROM items WHERE store = ? AND key = ?', store, key),
    async getKeys(base = '') {
      const sql = `SELECT CAST(key AS BLOB) AS key FROM items WHERE ${BELOW} ORDER BY key`;
      // A damaged key is still listed; its value reads as null, which the caller reports.
      return (await commits.read(sql, store, base, base)).map((row) => lenient.decode(row.key as Uint8Array));
    },
    clear: (base = '') => commits.write(`DELETE FROM items WHERE ${BELOW}`, store, base, base),
  };
});
