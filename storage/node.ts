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
import { DROP, type SqlExecutor } from './sql-driver.ts';
import { isDamagedLog } from './wal.ts';

/** Another process has the state database open. */
export class StateInUseError extends Error {}

const codeOf = (error: unknown): string => String((error as { code?: unknown })?.code ?? '');
const failure = (code: string) => Object.assign(new Error('the state database is damaged'), { code });

/** Shorter than this no database is, and SQLite would make a new one of it. */
const LEAST_BYTES = 512;

/** Whether it is the content that SQLite cannot work with. A damaged header may also claim that nobody may write. */
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

const FILES = ['', '-wal', '-shm'];

/** Moves or copies the database to a name that nobody has yet: that name. */
function setAside(path: string, put: (from: string, to: string) => void): string {
  let epoch = Math.floor(Date.now() / 1000);
  while (existsSync(`${path}.corrupt-${epoch}`)) epoch++;
  const aside = `${path}.corrupt-${epoch}`;
  for (const suffix of FILES) if (existsSync(path + suffix)) put(path + suffix, aside + suffix);
  return aside;
}

function hasDamagedLog(path: string): boolean {
  return existsSync(`${path}-wal`) && isDamagedLog(readFileSync(`${path}-wal`));
}

/**
 * Opens the state database, alone: WAL, every commit synced before it returns, exclusive lock for as long as it is
 * open, file 0600 in a directory made 0700. A damaged file is set aside as `*.corrupt-<epoch>`, never overwritten; so
 * is one whose log is damaged: without the rest of the log it may hold what was revoked.
 * @throws StateInUseError when another relay holds it.
 */
export function openStateFile(path: string, warn: (message: string) => void): SqlExecutor {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const empty = (aside: string) =>
    warn(`the state database was damaged; it is kept as ${aside} and the relay starts empty: pair your devices again`);
  // To copy comes first: SQLite writes to what it has opened.
  const copy = hasDamagedLog(path) ? setAside(path, copyFileSync) : undefined;
  try {
    const executor = open(path);
    // Judged again under the lock: it may have been the log of a relay that was writing to it.
    if (copy !== undefined && hasDamagedLog(path)) {
      executor.run(DROP);
      executor.all('PRAGMA wal_checkpoint(TRUNCATE)');
      empty(copy);
    } else if (copy !== undefined) remove(copy);
    return executor;
  } catch (error) {
    if (copy !== undefined) remove(copy);
    if (!isDamage(error, path)) throw error;
    empty(setAside(path, renameSync));
    return open(path);
  }
}

function remove(path: string): void {
  for (const suffix of FILES) rmSync(path + suffix, { force: true });
}

function open(path: string): SqlExecutor {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size > 0 && size < LEAST_BYTES) throw failure('SQLITE_NOTADB');
  const previous = process.umask(0o077);
  let database: Database.Database;
  try {
    database = new Database(path, { timeout: 0 } as Database.Options);
  } finally {
    process.umask(previous);
  }
  try {
    // The lock is taken by the first write transaction and, in exclusive mode, kept from then on.
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT;');
    const verdict = database.prepare('PRAGMA quick_check(1)').get() as { quick_check?: string } | undefined;
    if (verdict && verdict.quick_check !== 'ok') throw failure('SQLITE_CORRUPT');
    // Only now: turning WAL on writes to the file, and a damaged one is to be kept as it was found.
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;');
    chmodSync(path, 0o600);
    return executor(database);
  } catch (error) {
    database.close();
    if (codeOf(error).startsWith('SQLITE_BUSY') || codeOf(error) === 'SQLITE_LOCKED') {
      throw new StateInUseError('the state database is in use by another relay');
    }
    throw error;
  }
}

function executor(database: Database.Database): SqlExecutor {
  const statements = new Map<string, Database.Statement>();
  // The driver uses a handful of constant texts: each is prepared once.
  const prepared = (sql: string) => {
    let statement = statements.get(sql);
    if (!statement) {
      statement = database.prepare(sql);
      statements.set(sql, statement);
    }
    return statement;
  };
  return {
    run: (sql, ...values) => void prepared(sql).run(...values),
    all: (sql, ...values) => prepared(sql).all(...values) as Record<string, unknown>[],
    transaction(work) {
      prepared('BEGIN IMMEDIATE').run();
      try {
        work();
        prepared('COMMIT').run();
      } catch (error) {
        // SQLite has rolled back by itself after some failures.
        if (database.inTransaction) prepared('ROLLBACK').run();
        throw error;
      }
    },
    // After every event of this poll phase: messages of many sockets that arrived together share one sync.
    atTurnEnd: (run) => void setImmediate(run),
    close() {
      // libsql keeps the file open until its statements are garbage collected: give up the lock at once. Exclusive
      // mode can only be left outside WAL.
      database.exec('PRAGMA journal_mode = DELETE; PRAGMA locking_mode = NORMAL; SELECT count(*) FROM sqlite_schema;');
      database.close();
    },
  };
}
