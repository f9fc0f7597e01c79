import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readdirSync } from 'node:fs';
import {
  chmod,
  copyFile,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { HostDatabases } from '../../../../lib/host/index.ts';
import { createDatabases } from '../../../../lib/host/node/databases.ts';
import { createDatabase, startWriter, WAL } from '../../../support/agent-database.ts';
import { TIMED, TIMEOUT } from '../../../support/limits.ts';
import { runningWith, untilGone } from '../../../support/running.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const TABLE = 'CREATE TABLE t (a INTEGER, b TEXT);';
const databases = createDatabases({ timeout: TIMEOUT });
afterAll(() => databases.close());
const rowsFrom = async (reader: HostDatabases, path: string, sql: string, params: (string | number)[] = []) =>
  (await reader.read({ path, sql, params })).rows;
const read = (path: string, sql = 'SELECT a FROM t ORDER BY a', params: (string | number)[] = []) =>
  rowsFrom(databases, path, sql, params);
const rowsOf = (...numbers: number[]) => numbers.map((a) => ({ a }));

/** State of a directory that a reader might change. */
async function snapshot(directory: string): Promise<string[]> {
  const names = (await readdir(directory)).sort();
  return Promise.all(
    names.map(async (name) => {
      const { size, mtimeMs, ino, mode } = await lstat(join(directory, name));
      return `${name} ${size} ${mtimeMs} ${ino} ${mode}`;
    }),
  );
}

/** Reader processes of this test process; other tests run their own at the same time. */
async function readers(): Promise<number[]> {
  const pids = await runningWith('svc-relay-read-');
  const status = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')));
  return pids.filter((_pid, at) => status[at]?.includes(`\nPPid:\t${process.pid}\n`));
}

async function openFiles(below: string): Promise<string[]> {
  const pids = await readers();
  expect(pids).not.toEqual([]);
  const links = await Promise.all(
    pids.map(async (pid) => {
      const fds = await readdir(`/proc/${pid}/fd`).catch(() => []);
      return Promise.all(fds.map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')));
    }),
  );
  return links.flat().filter((link) => link.startsWith(below));
}

/** A database of a killed writer: its rows are in a log, and the log has lost its index. */
async function logWithoutIndex(): Promise<string> {
  const path = join(await temporaryDirectory(), 'state.db');
  const writer = await startWriter(path);
  await writer.run(`${WAL} ${TABLE} INSERT INTO t VALUES (1, NULL);`);
  await writer.kill();
  await rm(`${path}-shm`);
  return path;
}

describe('databases of other programs (04 §5.7, §7)', () => {
  it('reads rows that are only in the log of a running writer, and leaves no trace', async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'state.db');
    const writer = await startWriter(path);
    await writer.run(`${WAL} ${TABLE}`);
    await writer.run('PRAGMA wal_checkpoint(TRUNCATE)');
    await writer.run('INSERT INTO t VALUES (1, NULL)');
    const before = await snapshot(directory);
    expect(before.map((line) => line.split(' ')[0])).toEqual(['state.db', 'state.db-shm', 'state.db-wal']);
    expect(await read(path)).toEqual(rowsOf(1));
    expect(await snapshot(directory)).toEqual(before);

    // The writer continues undisturbed.
    expect(await writer.run('INSERT INTO t VALUES (2, NULL)')).toEqual([]);
    expect(await read(path)).toEqual(rowsOf(1, 2));
    expect(await writer.run('PRAGMA wal_checkpoint(TRUNCATE)')).toMatchObject([{ busy: 0, log: 0 }]);
    expect(await read(path)).toEqual(rowsOf(1, 2));
    await writer.run('INSERT INTO t VALUES (3, NULL)');
    expect(await read(path)).toEqual(rowsOf(1, 2, 3));
    await writer.run('DELETE FROM t WHERE a = 2');
    expect(await read(path)).toEqual(rowsOf(1, 3));
    // The reader keeps nothing open: the writer can even leave WAL, which requires to be the only connection.
    expect(await openFiles(directory)).toEqual([]);
    expect(await writer.run('PRAGMA journal_mode = DELETE')).toEqual([{ journal_mode: 'delete' }]);
    expect(await read(path)).toEqual(rowsOf(1, 3));
    expect(await readdir(directory)).toEqual(['state.db']);
  });

  it('reads the log of a killed writer', async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'state.db');
    const writer = await startWriter(path);
    await writer.run(`${WAL} ${TABLE} INSERT INTO t VALUES (1, NULL);`);
    await writer.kill();
    const before = await snapshot(directory);
    expect(await read(path)).toEqual(rowsOf(1));
    expect(await snapshot(directory)).toEqual(before);
    const next = await startWriter(path);
    expect(await next.run('SELECT a FROM t')).toEqual(rowsOf(1));
  });

  it('reads a log without an index, and creates none', async () => {
    const path = await logWithoutIndex();
    const directory = dirname(path);
    const before = await snapshot(directory);
    // A reader with a directory of its own for copies.
    const temporary = await temporaryDirectory();
    vi.stubEnv('TMPDIR', temporary);
    onTestFinished(() => void vi.unstubAllEnvs());
    const own = createDatabases({ timeout: TIMEOUT });
    onTestFinished(own.close);
    expect(await rowsFrom(own, path, 'SELECT a FROM t')).toEqual(rowsOf(1));
    expect(await snapshot(directory)).toEqual(before);
    expect(await readdir(temporary)).toEqual([]);
  });

  it('reads a database that nobody has open, whatever its name, and through links', async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'a ?b#c%20&mode=rwc.db');
    createDatabase(path, `${WAL} ${TABLE} INSERT INTO t VALUES (1, NULL);`);
    const writer = await startWriter(path);
    // Leaving and entering WAL releases files that uncollected statements may hold.
    await writer.run('PRAGMA wal_checkpoint(TRUNCATE)');
    await writer.kill();
    await rm(`${path}-wal`, { force: true });
    await rm(`${path}-shm`, { force: true });
    await symlink(path, join(directory, 'link'));
    await writeFile(`${path}-empty`, '');
    const before = await snapshot(directory);
    expect(await read(path)).toEqual(rowsOf(1));
    expect(await read(join(directory, 'link'))).toEqual(rowsOf(1));
    expect(await snapshot(directory)).toEqual(before);
    // An empty log counts as none.
    await writeFile(`${path}-wal`, '');
    expect(await read(path)).toEqual(rowsOf(1));
    expect((await readdir(directory)).filter((name) => name.endsWith('-shm'))).toEqual([]);
  });

  it.each([
    ['a missing file', 'absent', async () => {}],
    ['an empty file', 'absent', (path: string) => writeFile(path, '')],
    ['a directory', 'unreadable', (path: string) => mkdir(path)],
    ['another kind of file', 'unreadable', (path: string) => writeFile(path, 'SQLite? '.repeat(1000))],
    ['a cut file', 'unreadable', (path: string) => writeFile(path, 'SQLite format 3\0')],
    ['a link to nothing', 'absent', (path: string) => symlink(`${path}.gone`, path)],
    ['a link to itself', 'unreadable', (path: string) => symlink(path, path)],
    [
      'a corrupt file',
      'unreadable',
      async (path: string) => {
        createDatabase(`${path}.good`, `${TABLE} INSERT INTO t VALUES (1, NULL);`);
        const bytes = await readFile(`${path}.good`);
        await writeFile(path, bytes.fill(0xa5, 100));
        await rm(`${path}.good`);
      },
    ],
    ['another schema', 'absent', async (path: string) => createDatabase(path, 'CREATE TABLE other (a);')],
  ])('%s has no rows, and stays unchanged', async (_name, problem, make) => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'state.db');
    await make(path);
    // A log next to an empty database, which a normal open would delete.
    await writeFile(`${path}-wal`, '');
    const before = await snapshot(directory);
    expect(await databases.read({ path, sql: 'SELECT a FROM t', params: [] })).toEqual({ rows: null, problem });
    expect(await snapshot(directory)).toEqual(before);
  });

  it('refuses to write', async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'state.db');
    createDatabase(path, `${TABLE} INSERT INTO t VALUES (1, NULL);`);
    expect(await read(path, 'INSERT INTO t VALUES (2, NULL) RETURNING a')).toBeNull();
    expect(await read(path, 'CREATE TABLE u (a)')).toBeNull();
    expect(await read(path)).toEqual(rowsOf(1));
  });

  it('gives up on a locked database after 500 ms, without blocking the event loop', TIMED, async () => {
    const path = join(await temporaryDirectory(), 'state.db');
    const writer = await startWriter(path);
    await writer.run(`${TABLE} INSERT INTO t VALUES (1, NULL); BEGIN EXCLUSIVE;`);
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    const started = performance.now();
    const sql = 'SELECT a FROM t';
    expect(await databases.read({ path, sql, params: [] })).toEqual({ rows: null, problem: 'unreadable' });
    const waited = performance.now() - started;
    delay.disable();
    expect(waited).toBeGreaterThan(450);
    expect(waited).toBeLessThan(2400);
    expect(delay.max / 1e6).toBeLessThan(400);
    await writer.run('COMMIT');
    expect(await read(path)).toEqual(rowsOf(1));
  });

  it('ends an endless query, those behind it, and their process', async () => {
    const path = join(await temporaryDirectory(), 'state.db');
    createDatabase(path, `${TABLE} INSERT INTO t VALUES (1, NULL);`);
    const impatient = createDatabases({ timeout: 3_000 });
    const ask = (sql: string) => rowsFrom(impatient, path, sql);
    const before = await readers();
    const started = performance.now();
    const endless = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS a FROM n';
    const both = Promise.all([ask(endless), ask('SELECT a FROM t')]);
    const [stuck] = (await readers()).filter((pid) => !before.includes(pid));
    expect(stuck).toBeDefined();
    expect(await both).toEqual([null, null]);
    expect(performance.now() - started).toBeGreaterThan(2_900);
    await untilGone(stuck as number);
    await vi.waitFor(async () => expect(await ask('SELECT a FROM t')).toEqual(rowsOf(1)));
    impatient.close();
  });

  it('leaves no copy behind when it ends while reading one', async () => {
    const path = await logWithoutIndex();
    const patient = createDatabases({ timeout: 60_000 });
    const endless = 'WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) AS a FROM n, t';
    const answer = rowsFrom(patient, path, endless);
    const copies = async () => (await openFiles(tmpdir())).filter((link) => link.endsWith('/copy.db'));
    await vi.waitFor(async () => expect(await copies()).not.toEqual([]), { timeout: 10_000 });
    const [copy] = await copies();
    patient.close();
    expect(await answer).toBe(null);
    await vi.waitFor(() => expect(stat(dirname(copy as string))).rejects.toThrow('ENOENT'));
  });

  it('ends the process after a while without queries, and with the relay', async () => {
    const path = join(await temporaryDirectory(), 'state.db');
    createDatabase(path, `${TABLE} INSERT INTO t VALUES (1, NULL);`);
    for (const [options, finish] of [
      [{ idle: 50 }, () => {}],
      [{}, (short: HostDatabases) => short.close()],
    ] as const) {
      const before = await readers();
      const short = createDatabases({ timeout: TIMEOUT, ...options });
      const reading = rowsFrom(short, path, 'SELECT a FROM t');
      const [own] = (await readers()).filter((pid) => !before.includes(pid));
      expect(await reading).toEqual(rowsOf(1));
      finish(short);
      await untilGone(own as number);
      expect(await rowsFrom(short, path, 'SELECT a FROM t')).toEqual(rowsOf(1));
      short.close();
    }
  });

  it('binds values, and stops at 5,000 rows', async () => {
    const path = join(await temporaryDirectory(), 'state.db');
    createDatabase(
      path,
      `${TABLE} WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 6000)
       INSERT INTO t SELECT i, 'x' FROM n;`,
    );
    expect(await read(path)).toHaveLength(5000);
    expect(await read(path, 'SELECT a FROM t WHERE a = ? AND b = ?', [7, 'x'])).toEqual(rowsOf(7));
    expect(await read(path, 'SELECT a FROM t WHERE b = ?', ["' OR 1"])).toEqual([]);
    const all = await databases.read({ path, sql: 'SELECT a FROM t', params: [] });
    expect(all).toMatchObject({ isCut: true });
    const first = 'SELECT a FROM t LIMIT 5000';
    expect(await databases.read({ path, sql: first, params: [] })).toEqual({ rows: all.rows, isCut: false });
  });

  it('reads no further row after 4 MiB of texts and blobs', async () => {
    const path = join(await temporaryDirectory(), 'state.db');
    createDatabase(
      path,
      `${TABLE} INSERT INTO t VALUES (1, zeroblob(3000000)), (2, hex(zeroblob(1000000))), (3, 'x');`,
    );
    const sql = 'SELECT b FROM t ORDER BY a';
    const { rows, ...rest } = await databases.read({ path, sql, params: [] });
    expect([rows?.length, rest]).toEqual([2, { isCut: true }]);
  });

  it('answers many queries at once from one process, and keeps no file open', async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'state.db');
    createDatabase(path, `${TABLE} INSERT INTO t VALUES (1, NULL);`);
    for (let copy = 0; copy < 20; copy++) await copyFile(path, join(directory, `${copy}.db`));
    const answers = await Promise.all(Array.from({ length: 20 }, (_, copy) => read(join(directory, `${copy}.db`))));
    expect(answers).toEqual(Array.from({ length: 20 }, () => rowsOf(1)));
    expect(await openFiles(directory)).toEqual([]);
  });

  it.skipIf(process.getuid?.() === 0)('reads a directory that it may not write to', async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'state.db');
    const writer = await startWriter(path);
    await writer.run(`${WAL} ${TABLE} INSERT INTO t VALUES (1, NULL);`);
    await chmod(directory, 0o500);
    expect(await read(path)).toEqual(rowsOf(1));
    await writer.kill();
    expect(await read(path)).toEqual(rowsOf(1));
    await chmod(directory, 0o700);
  });
});

/** Runs `work` while no further file can be opened in this process. */
function withoutDescriptors<T>(work: () => T): T {
  const limit = (...options: string[]) =>
    execFileSync('prlimit', ['--pid', String(process.pid), ...options], { encoding: 'utf8' });
  const before = limit('--nofile', '--output', 'SOFT', '--noheadings', '--raw').trim();
  const highest = Math.max(...readdirSync('/proc/self/fd').map(Number));
  limit(`--nofile=${highest + 16}:`);
  const held: number[] = [];
  try {
    for (;;) held.push(openSync('/dev/null', 'r'));
  } catch {
    return work();
  } finally {
    for (const descriptor of held) closeSync(descriptor);
    limit(`--nofile=${before}:`);
  }
}

it.skipIf(process.platform !== 'linux')('answers when no descriptors are left, and works again', async () => {
  const path = join(await temporaryDirectory(), 'state.db');
  createDatabase(path, `${TABLE} INSERT INTO t VALUES (1, 'x');`);
  const reader = createDatabases({ timeout: TIMEOUT });
  onTestFinished(() => reader.close());
  const reading = withoutDescriptors(() => reader.read({ path, sql: 'SELECT a FROM t', params: [] }));
  expect(await reading).toEqual({ rows: null, problem: 'unreadable' });
  expect(await rowsFrom(reader, path, 'SELECT a FROM t')).toEqual(rowsOf(1));
});
