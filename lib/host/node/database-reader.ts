import type Libsql from 'libsql';
import type { DatabaseQuery, DatabaseResult, DatabaseRow } from '../index.ts';

/** One query on its way to the reader, and its answer on the way back. */
export interface ReaderRequest extends DatabaseQuery {
  id: number;
}
export interface ReaderResponse {
  id: number;
  result: DatabaseResult;
}

/** Dependencies of the reader, which cannot import anything. */
export interface ReaderTools {
  fs: typeof import('node:fs');
  path: typeof import('node:path');
  Database: typeof Libsql;
  /** Directory for private copies; it exists only while there is a copy. */
  scratch: string;
  /** Milliseconds to wait for a lock. */
  busyTimeout: number;
  maxRows: number;
  /** Total length of texts and blobs, in characters and bytes, after which no further row is read. */
  maxLength: number;
  /** Largest database that is copied, in bytes. */
  maxCopy: number;
}

/**
 * The function that the reading process runs for a request. It is passed to that process as text, so that the same
 * source runs before and after the build, and must not refer to anything outside of itself.
 *
 * SQLite writes even for readers: a connection to a database in WAL mode creates a missing `-wal` and `-shm`, opening a
 * database without pages deletes its `-wal`, and the last connection to close checkpoints. So the way to open a file
 * depends on the files next to it:
 *
 * - `-wal` and `-shm` exist (the agent runs, or was killed): read-only, including `-shm`. SQLite takes shared locks
 *   like
 *   any reader, and without a running agent reads the log into its own memory.
 * - no `-wal`, or an empty one: everything is in the main file. It is read as immutable, without locks, and read again
 *   if
 *   it has changed in the meantime.
 * - `-wal` without `-shm` (the agent does not run; restored from a backup): a private copy is read.
 * - a rollback journal instead of WAL: read-only, with a shared lock like any reader.
 */
export function createReader(tools: ReaderTools): (request: ReaderRequest) => ReaderResponse {
  const { fs, path, Database, scratch, busyTimeout, maxRows, maxLength, maxCopy } = tools;
  const ATTEMPTS = 3;
  const HEADER = 'SQLite format 3\0';
  const ABSENT: DatabaseResult = { rows: null, problem: 'absent' };
  const UNREADABLE: DatabaseResult = { rows: null, problem: 'unreadable' };
  /** Errors for a missing file, and SQLite's error for a query that names a missing table or column. */
  const ABSENT_CODES = ['ENOENT', 'ENOTDIR', 'SQLITE_ERROR'];

  const infoOf = (file: string) => {
    const info = fs.statSync(file, { bigint: true, throwIfNoEntry: false });
    return info?.isFile() ? info : undefined;
  };
  type Facts = ReturnType<typeof infoOf>;
  const print = (facts: Facts) => (facts ? `${facts.dev}:${facts.ino}:${facts.size}:${facts.mtimeNs}` : '-');
  const mark = (file: string) => `${print(infoOf(file))} ${print(infoOf(`${file}-wal`))}`;

  /**
   * Journal mode of a database file. The file must not be open in this process, since closing it would drop our locks.
   */
  function kindOf(file: string): 'wal' | 'rollback' | 'none' {
    const header = Buffer.alloc(20);
    const descriptor = fs.openSync(file, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
    try {
      if (fs.readSync(descriptor, header, 0, 20, 0) < 20) return 'none';
    } finally {
      fs.closeSync(descriptor);
    }
    if (header.toString('latin1', 0, 16) !== HEADER) return 'none';
    return header[18] === 2 ? 'wal' : 'rollback';
  }

  function query(file: string, flags: string, { sql, params }: ReaderRequest): DatabaseResult {
    const uri = `file:${file.replace(/[%?#]/g, encodeURIComponent)}?mode=ro&${flags}`;
    const database = new Database(uri, { timeout: busyTimeout } as Libsql.Options);
    try {
      const rows: DatabaseRow[] = [];
      let length = 0;
      for (const item of database.prepare(sql).iterate(...params)) {
        if (rows.length === maxRows || length > maxLength) return { rows, isCut: true };
        const row: DatabaseRow = {};
        for (const [name, value] of Object.entries(item as Record<string, DatabaseRow[string] | ArrayBuffer>)) {
          const read = value instanceof ArrayBuffer ? new Uint8Array(value) : value;
          row[name] = read;
          if (typeof read === 'string' || read instanceof Uint8Array) length += read.length;
        }
        rows.push(row);
      }
      return { rows, isCut: false };
    } finally {
      database.close();
    }
  }

  function queryCopy(file: string, request: ReaderRequest): DatabaseResult {
    // Fails if the path exists, so that nobody can plant a directory there.
    fs.mkdirSync(scratch, { mode: 0o700 });
    try {
      const copy = path.join(scratch, 'copy.db');
      for (const suffix of ['', '-wal']) fs.copyFileSync(file + suffix, copy + suffix, fs.constants.COPYFILE_FICLONE);
      return query(copy, 'cache=private', request);
    } finally {
      fs.rmSync(scratch, { recursive: true, force: true });
    }
  }

  /** The result, or undefined if the file changed during the read. */
  function attempt(request: ReaderRequest): DatabaseResult | undefined {
    const file = fs.realpathSync(request.path);
    const before = mark(file);
    const main = infoOf(file);
    const log = infoOf(`${file}-wal`);
    if (!main) return UNREADABLE;
    // An opened database without tables is an empty file.
    if (main.size === 0n) return ABSENT;
    const kind = kindOf(file);
    if (kind === 'none') return UNREADABLE;
    const hasIndex = infoOf(`${file}-shm`) !== undefined;
    if (kind === 'rollback' || (log && hasIndex)) {
      try {
        return query(file, 'readonly_shm=1', request);
      } catch (error) {
        // The agent may have just closed its last connection, which removes the files beside the database.
        if (mark(file) !== before) return undefined;
        throw error;
      }
    }
    if (log && log.size > 0n) {
      if (main.size + log.size > BigInt(maxCopy)) return UNREADABLE;
      const result = queryCopy(file, request);
      return mark(file) === before && !infoOf(`${file}-shm`) ? result : undefined;
    }
    let result: DatabaseResult | undefined;
    try {
      result = query(file, 'immutable=1', request);
    } catch (error) {
      if (mark(file) === before) throw error;
    }
    return mark(file) === before ? result : undefined;
  }

  return (request) => {
    try {
      for (let round = 0; round < ATTEMPTS; round++) {
        const result = attempt(request);
        if (result !== undefined) return { id: request.id, result };
      }
    } catch (error) {
      const { code } = error as { code?: unknown };
      if (ABSENT_CODES.includes(String(code))) return { id: request.id, result: ABSENT };
    }
    return { id: request.id, result: UNREADABLE };
  };
}
