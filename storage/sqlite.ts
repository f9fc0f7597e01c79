import {
  accessSync,
  chmodSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import Database from 'libsql';
import AsyncDatabase from 'libsql/promise';
import { type Row, type SqlExecutor, type StoredRow, storedRow } from './sql-driver.ts';
import { isDamagedLog } from './wal.ts';

/** Another relay has the state database open. */
export class StateInUseError extends Error {
  constructor() {
    super('the state database is in use by another relay');
  }
}

const codeOf = (error: unknown): string => String((error as { code?: unknown })?.code ?? '');
const damage = (code: string) => Object.assign(new Error('the state database is damaged'), { code });

/** No database is shorter, and SQLite would make a new one of such a file. */
const MIN_BYTES = 512;

/** True if the content is the reason why SQLite cannot work with the file. A damaged header may claim to be read-only. */
function isDamage(error: unknown, path: string): boolean {
  const code = codeOf(error);
  if (code.startsWith('SQLITE_READONLY')) return isWritable(path);
  return code.startsWith('SQLITE_NOTADB') || code.startsWith('SQLITE_CORRUPT');
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    accessSync(dirname(path), constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Pages returned to the file system in one step, once half of the file is free: 1 MiB. */
const MIN_FREE_PAGES = 256;

const OPEN_ATTEMPTS = 6;
/** Maximum milliseconds between two attempts. */
const OPEN_PAUSE = 100;

/** Milliseconds in which a thread must begin with a commit. */
const COMMIT_START = 10_000;

const LOG = '-wal';
const FILES = ['', LOG, '-shm'];

/** Stops the event loop for this many milliseconds. */
const pause = (delay: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, delay);

/** Bytes of a file, or undefined if it does not exist. */
const sizeOf = (path: string): number | undefined => statSync(path, { throwIfNoEntry: false })?.size;

/** Makes the files of a database private: they may be copies, or from an earlier version of the relay. */
function protect(path: string): void {
  for (const suffix of FILES) if (existsSync(path + suffix)) chmodSync(path + suffix, 0o600);
}

/** Moves or copies the database to an unused name, and returns it. */
function setAside(path: string, put: (from: string, to: string) => void): string {
  let epoch = Math.floor(Date.now() / 1000);
  while (FILES.some((suffix) => existsSync(`${path}.corrupt-${epoch}${suffix}`))) epoch++;
  const aside = `${path}.corrupt-${epoch}`;
  for (const suffix of FILES) if (existsSync(path + suffix)) put(path + suffix, aside + suffix);
  protect(aside);
  return aside;
}

function remove(path: string): void {
  for (const suffix of FILES) rmSync(path + suffix, { force: true });
}

function hasDamagedLog(path: string): boolean {
  return existsSync(path + LOG) && isDamagedLog(readFileSync(path + LOG));
}

/** True if the file is empty, or missing beside its log. */
function isEmptied(path: string): boolean {
  const size = sizeOf(path);
  return size === 0 || (size === undefined && (sizeOf(path + LOG) ?? 0) > 0);
}

/**
 * Opens the state database for this process alone: WAL, every commit synced before it returns, an exclusive lock while
 * it is open, file 0600 in a directory created with 0700, whose parent exists. A damaged or empty file is set aside as
 * `*.corrupt-<epoch>`, never overwritten. When its log is damaged, everything before the damage is kept and a copy of
 * all files is set aside; revocations after the damage may be lost. The warning about a damaged file ends with
 * `consequence`.
 * @throws StateInUseError when another relay holds it.
 */
export function openStateFile(
  path: string,
  warn: (message: string) => void,
  consequence = 'the relay starts empty: pair your devices again',
): SqlExecutor {
  if (!existsSync(dirname(path))) mkdirSync(dirname(path), 0o700);
  const startEmpty = (aside: string) =>
    warn(`the state database was damaged; it is kept as ${aside} and ${consequence}`);
  const emptied = isEmptied(path);
  // The copy is made first: SQLite writes to what it opens, and deletes the log of an empty file.
  const copy = emptied || hasDamagedLog(path) ? setAside(path, copyFileSync) : undefined;
  try {
    const executor = open(path, emptied);
    // Checked again under the lock: another relay may have been writing the log.
    if (copy !== undefined && hasDamagedLog(path)) {
      // SQLite has recovered everything before the damage.
      executor.all('PRAGMA wal_checkpoint(TRUNCATE)');
      warn(
        `the log of the state database was damaged; it is kept as ${copy} and the changes after the damage are lost: ` +
          'look for devices that were revoked just before',
      );
    } else if (copy !== undefined) remove(copy);
    return executor;
  } catch (error) {
    if (!isDamage(error, path)) {
      if (copy !== undefined) remove(copy);
      throw error;
    }
    if (copy !== undefined) remove(path);
    startEmpty(copy ?? setAside(path, renameSync));
    return open(path, false);
  }
}

/**
 * Opens a state database as `openStateFile` does, but leaves a damaged one as it is. Returns null for a missing file.
 * @throws StateInUseError when another relay holds it, and SQLite's error for a damaged one.
 */
export function openSoundState(path: string): SqlExecutor | null {
  if (isEmptied(path)) throw damage('SQLITE_NOTADB');
  if (!existsSync(path)) return null;
  if (hasDamagedLog(path)) throw damage('SQLITE_CORRUPT');
  return open(path, false);
}

/**
 * Locks a state database against every relay and moves its log into the file, so that the file can be moved away.
 * Returns the release. Holds nothing if the database is missing or damaged.
 * @throws StateInUseError when a relay holds it.
 */
export function holdState(path: string): () => void {
  if ((sizeOf(path) ?? 0) === 0) return () => {};
  const database = new Database(path, { timeout: 0 } as Database.Options);
  try {
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT; PRAGMA journal_mode = DELETE;');
    database.exec('BEGIN EXCLUSIVE');
    return () => void database.close();
  } catch (error) {
    database.close();
    if (isBusy(error)) throw new StateInUseError();
    if (isDamage(error, path)) return () => {};
    throw error;
  }
}

/**
 * Locks a file that is nothing else, and is created if missing, for this process alone; a kill unlocks it. Returns the
 * release, null while another process has the lock.
 */
export function tryLock(path: string): (() => void) | null {
  const database = openPrivate(path);
  try {
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
    return () => void database.close();
  } catch (error) {
    database.close();
    if (isBusy(error)) return null;
    throw error;
  }
}

/** The rows of a snapshot, in key order. A damaged row is null. */
export function* readSnapshot(path: string): Generator<StoredRow | null> {
  const database = new Database(path, { readonly: true } as Database.Options);
  try {
    // Text is read as bytes: libsql aborts the process at invalid UTF-8.
    const blobs = 'CAST(store AS BLOB) AS store, CAST(key AS BLOB) AS key, CAST(value AS BLOB) AS value';
    const rows = database.prepare(`SELECT ${blobs} FROM items ORDER BY store, key`).iterate();
    for (const row of rows as Iterable<Row>) yield storedRow(row);
  } finally {
    database.close();
  }
}

/**
 * Two relays that open a database at the same moment lock each other out. Each lets go and retries after a pause of a
 * random length.
 * @throws SQLITE_NOTADB also for a file that was `emptied`, unless another relay has filled it meanwhile.
 */
function open(path: string, emptied: boolean): SqlExecutor {
  for (let left = OPEN_ATTEMPTS - 1; ; left--) {
    try {
      return openOnce(path, emptied);
    } catch (error) {
      if (left === 0 || !(error instanceof StateInUseError)) throw error;
      pause(Math.random() * OPEN_PAUSE);
    }
  }
}

function openOnce(path: string, emptied: boolean): SqlExecutor {
  const size = sizeOf(path) ?? 0;
  if (size > 0 && size < MIN_BYTES) throw damage('SQLITE_NOTADB');
  const database = openPrivate(path);
  try {
    // The lock is taken by the first write transaction and, in exclusive mode, kept from then on.
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT;');
    if (emptied && !database.prepare('SELECT 1 FROM sqlite_schema').get()) throw damage('SQLITE_NOTADB');
    const verdict = database.prepare('PRAGMA quick_check(1)').get() as { quick_check?: string } | undefined;
    if (verdict && verdict.quick_check !== 'ok') throw damage('SQLITE_CORRUPT');
    // Before the log exists, because SQLite gives it the mode of the database.
    protect(path);
    // Not earlier: turning WAL on writes to the file, and a damaged file must stay as it was found.
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;');
    return executor(database);
  } catch (error) {
    database.close();
    if (isBusy(error)) throw new StateInUseError();
    throw error;
  }
}

/** A new file is private. */
function openPrivate(path: string): Database.Database {
  const previous = process.umask(0o077);
  try {
    return new Database(path, { timeout: 0 } as Database.Options);
  } finally {
    process.umask(previous);
  }
}

const isBusy = (error: unknown): boolean =>
  codeOf(error).startsWith('SQLITE_BUSY') || codeOf(error) === 'SQLITE_LOCKED';

function executor(database: Database.Database): SqlExecutor {
  const statements = new Map<string, Database.Statement>();
  // The driver uses a handful of constant statements: each is prepared once.
  const prepared = (sql: string) => {
    let statement = statements.get(sql);
    if (!statement) {
      statement = database.prepare(sql);
      statements.set(sql, statement);
    }
    return statement;
  };
  let isOpen = true;
  /** True from the start of a commit in the thread until its outcome is known here. */
  let isCommitting = false;
  /**
   * Waits until the commit in the thread has begun: a call that overtakes it would roll its transaction back, or be committed
   * by it. Once it has begun, SQLite itself makes other calls wait.
   */
  const awaitCommit = () => {
    for (let left = COMMIT_START; left > 0 && isCommitting && database.inTransaction; left--) pause(1);
    isCommitting = false;
  };
  const rollback = () => {
    // SQLite has rolled back by itself after some failures.
    if (isOpen && database.inTransaction) prepared('ROLLBACK').run();
  };
  /** Runs the statements of `work` without committing them. */
  const begin = (work: () => void) => {
    awaitCommit();
    rollback();
    prepared('BEGIN IMMEDIATE').run();
    try {
      work();
    } catch (error) {
      rollback();
      throw error;
    }
  };
  const pragma = (name: string) => Number(Object.values((prepared(`PRAGMA ${name}`).get() ?? {}) as object)[0]);
  return {
    run: (sql, ...values) => void prepared(sql).run(values),
    all: (sql, ...values) => prepared(sql).all(...values) as Row[],
    transaction(work) {
      begin(work);
      try {
        prepared('COMMIT').run();
      } catch (error) {
        rollback();
        throw error;
      }
    },
    async commitLater(work) {
      begin(work);
      isCommitting = true;
      try {
        await execInThread(database, 'COMMIT');
      } catch (error) {
        rollback();
        throw error;
      } finally {
        isCommitting = false;
      }
    },
    async maintain() {
      // A bad byte in the log costs everything after it; in the file, mostly one record.
      await execInThread(database, 'PRAGMA wal_checkpoint(TRUNCATE)');
      if (!isOpen) return;
      const free = pragma('freelist_count');
      if (free < MIN_FREE_PAGES || free < pragma('page_count') / 2) return;
      await execInThread(database, 'PRAGMA temp_store = MEMORY; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);');
    },
    snapshot: (target) => execInThread(database, `VACUUM INTO '${target.replaceAll("'", "''")}'`),
    // After every event of this poll phase: messages of many sockets that arrived together share one sync.
    atTurnEnd: (run) => void setImmediate(run),
    close() {
      // libsql keeps the file open until its statements are garbage collected: give up the lock at once. Exclusive
      // mode can only be left outside WAL.
      awaitCommit();
      isOpen = false;
      database.exec('PRAGMA journal_mode = DELETE; PRAGMA locking_mode = NORMAL; SELECT count(*) FROM sqlite_schema;');
      database.close();
    },
  };
}

/**
 * Executes on one of libsql's own threads. Its two APIs share their connections, which only the synchronous one can
 * prepare statements for without a round trip. Any other use of the connection stops the event loop until it is over.
 */
const execInThread = (database: Database.Database, sql: string): Promise<void> =>
  AsyncDatabase.prototype.exec.call(database as never, sql) as unknown as Promise<void>;
