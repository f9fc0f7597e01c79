import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync } from 'node:fs';
import { chmod, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import Database from 'libsql';
import type { Storage } from 'unstorage';
import { afterEach, describe, expect, it } from 'vitest';
import { lockHolder } from '../../lib/host/node/relay-lock.ts';
import { createStores } from '../../storage/index.ts';
import type { Stores } from '../../storage/schema.ts';
import { sqlBackend } from '../../storage/sql-backend.ts';
import { holdState, openSoundState, openStateFile, readSnapshot, StateInUseError } from '../../storage/sqlite.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function temporaryPath(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-state-'));
  cleanups.push(() => rm(directory, { recursive: true, force: true }));
  return join(directory, 'relay', 'state.db');
}

function open(path: string): { stores: Stores; warnings: string[] } {
  const warnings: string[] = [];
  const opened = createStores('node', sqlBackend(openStateFile(path, (message) => warnings.push(message))));
  let isOpen = true;
  const close = () => {
    if (isOpen) opened.close();
    isOpen = false;
  };
  cleanups.push(close);
  return { stores: { ...opened, close }, warnings };
}

const records = (stores: Stores) => stores.open('sessions') as unknown as Storage<object>;

async function filled(path: string, count = 40): Promise<Stores> {
  const { stores } = open(path);
  for (let at = 0; at < count; at++) await records(stores).setItem(`k${at}`, { at, text: 'x'.repeat(600) });
  return stores;
}

const asideOf = async (path: string) =>
  (await readdir(dirname(path))).filter((name) => /^state\.db\.corrupt-\d+$/.test(name));

describe('written values persist (01 §6.7)', () => {
  it('after an orderly close', async () => {
    const path = await temporaryPath();
    (await filled(path)).close();
    const { stores, warnings } = open(path);
    expect(await records(stores).getKeys()).toHaveLength(40);
    expect(await records(stores).getItem('k7')).toMatchObject({ at: 7 });
    expect(warnings).toEqual([]);
  });

  it('in a copy of the files at any moment: a write is complete in the log when it resolves', async () => {
    const path = await temporaryPath();
    const { stores } = open(path);
    const copies: string[] = [];
    for (let at = 0; at < 10; at++) {
      await records(stores).setItem(`k${at}`, { at });
      const copy = join(await mkdtemp(join(tmpdir(), 'svc-relay-copy-')), 'state.db');
      cleanups.push(() => rm(dirname(copy), { recursive: true, force: true }));
      for (const suffix of ['', '-wal']) {
        if (existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
      }
      copies.push(copy);
    }
    for (const [at, copy] of copies.entries()) {
      const { stores: later, warnings } = open(copy);
      expect(await records(later).getKeys()).toHaveLength(at + 1);
      expect(warnings).toEqual([]);
    }
  });

  it('where the log ends in the middle of a write: all earlier writes hold', async () => {
    const path = await temporaryPath();
    const stores = await filled(path, 5);
    const copy = join(dirname(path), 'copy.db');
    copyFileSync(path, copy);
    const log = await readFile(`${path}-wal`);
    await writeFile(`${copy}-wal`, log.subarray(0, log.length - 100));
    stores.close();
    const { stores: later, warnings } = open(copy);
    expect(await records(later).getKeys()).toHaveLength(4);
    expect(warnings).toEqual([]);
  });
});

describe('files (01 §6.7)', () => {
  it('are 0600 in a directory that is 0700, whatever the umask', async () => {
    const path = await temporaryPath();
    const previous = process.umask(0);
    cleanups.push(() => process.umask(previous));
    await filled(path);
    expect((await stat(dirname(path))).mode & 0o777).toBe(0o700);
    const names = await readdir(dirname(path));
    expect(names).toContain('state.db-wal');
    for (const name of names) expect((await stat(join(dirname(path), name))).mode & 0o777, name).toBe(0o600);
    expect(process.umask()).toBe(0);
  });

  it('that became readable to others are made private again', async () => {
    const path = await temporaryPath();
    (await filled(path)).close();
    await chmod(path, 0o644);
    await filled(path);
    const names = await readdir(dirname(path));
    expect(names).toContain('state.db-wal');
    for (const name of names) expect((await stat(join(dirname(path), name))).mode & 0o777, name).toBe(0o600);
  });

  it('that are set aside are private, too', async () => {
    const path = await temporaryPath();
    (await filled(path)).close();
    await writeFile(path, Buffer.alloc(8192, 'x'));
    await chmod(path, 0o644);
    open(path);
    const names = await readdir(dirname(path));
    expect(names.join()).toContain('.corrupt-');
    for (const name of names) expect((await stat(join(dirname(path), name))).mode & 0o777, name).toBe(0o600);
  });
});

describe('one relay at a time (design 4)', () => {
  it('refuses a second one in this process, without disturbing the first', async () => {
    const path = await temporaryPath();
    const first = await filled(path, 3);
    expect(() => open(path)).toThrow(StateInUseError);
    await records(first).setItem('after', { it: 1 });
    expect(await records(first).getKeys()).toHaveLength(4);
    expect(await asideOf(path)).toEqual([]);
    first.close();
    expect(await records(open(path).stores).getKeys()).toHaveLength(4);
  });

  it('refuses another process', async () => {
    const path = await temporaryPath();
    await filled(path, 3);
    const script =
      "import Database from 'libsql'; const db = new Database(process.argv[1], { timeout: 0 });" +
      "try { db.prepare('SELECT count(*) FROM items').get(); } catch (error) { console.log(error.code); }";
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script, path], { encoding: 'utf8' });
    expect(stdout).toMatch(/^SQLITE_(?:BUSY|LOCKED)/);
  });

  it.runIf(process.platform === 'linux')('names the process that holds the state', async () => {
    const path = await temporaryPath();
    (await filled(path, 3)).close();
    const expectInUse = (name: string, pid: number) => {
      expect(() => open(name)).toThrow('in use by another relay');
      expect(lockHolder(name)).toBe(pid);
    };

    const own = open(path);
    expectInUse(path, process.pid);
    own.stores.close();
    expect(lockHolder(path)).toBeUndefined();

    const script =
      "import Database from 'libsql'; const db = new Database(process.argv[1], { timeout: 0 });" +
      "db.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT'); console.log('held'); setInterval(() => {}, 1e6)";
    const holder = spawn(process.execPath, ['--input-type=module', '-e', script, path], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    cleanups.push(() => holder.kill('SIGKILL'));
    await once(holder.stdout, 'data');
    const link = join(dirname(path), 'link.db');
    await symlink(path, link);
    for (const name of [path, link]) expectInUse(name, holder.pid as number);
    holder.kill('SIGKILL');
    await once(holder, 'exit');
    expect(await records(open(path).stores).getKeys()).toHaveLength(3);
    expect(await asideOf(path)).toEqual([]);
  });
});

describe('a damaged file (01 §6.7)', () => {
  it.each<[string, (whole: Buffer) => Buffer]>([
    ['of garbage', () => Buffer.from('no database, not even nearly. '.repeat(400))],
    ['of garbage shorter than a header', () => Buffer.from('hello')],
    ['with a damaged header', (whole) => Buffer.concat([Buffer.alloc(32, 0xff), whole.subarray(32)])],
    ['cut to half', (whole) => whole.subarray(0, whole.length / 2)],
    ['cut to its first page', (whole) => whole.subarray(0, 4096)],
    ['cut in a page', (whole) => whole.subarray(0, whole.length - 1000)],
    [
      'with zeros inside',
      (whole) => Buffer.concat([whole.subarray(0, 4096), Buffer.alloc(8192), whole.subarray(12_288)]),
    ],
    [
      'with noise inside',
      (whole) => Buffer.concat([whole.subarray(0, 4096), Buffer.alloc(4096, 7), whole.subarray(8192)]),
    ],
  ])('%s is set aside unchanged, never overwritten, with one warning', async (_name, damage) => {
    const path = await temporaryPath();
    (await filled(path)).close();
    const whole = await readFile(path);
    expect(whole.length).toBeGreaterThan(20_000);
    const damaged = damage(whole);
    await writeFile(path, damaged);
    const { stores, warnings } = open(path);
    expect(await records(stores).getKeys()).toEqual([]);
    const [name, ...more] = await asideOf(path);
    expect(more).toEqual([]);
    const aside = join(dirname(path), String(name));
    expect((await readFile(aside)).equals(damaged)).toBe(true);
    expect(warnings).toEqual([expect.stringContaining(aside)]);
    expect(warnings[0]).toMatch(/damaged.*starts empty/);
    await records(stores).setItem('a', { it: 1 });
    stores.close();
    const again = open(path);
    expect(await records(again.stores).getKeys()).toEqual(['a']);
    expect(again.warnings).toEqual([]);
  });

  it('of a few bytes, or with a header that claims to be read-only, counts as damaged', async () => {
    const path = await temporaryPath();
    (await filled(path)).close();
    const whole = await readFile(path);
    const unwritable = Buffer.from(whole);
    unwritable[18] = 0xff;
    for (const [count, damaged] of [whole.subarray(0, 50), whole.subarray(0, 80), unwritable].entries()) {
      await writeFile(path, damaged);
      const { stores, warnings } = open(path);
      expect(await records(stores).getKeys()).toEqual([]);
      expect(warnings).toHaveLength(1);
      stores.close();
      const kept = await Promise.all((await asideOf(path)).map((name) => readFile(join(dirname(path), name))));
      expect(kept).toHaveLength(count + 1);
      expect(kept.some((bytes) => bytes.equals(damaged))).toBe(true);
    }
  });

  it.each<[string, boolean, boolean]>([
    ['of 0 bytes', true, false],
    ['of 0 bytes beside its log', true, true],
    ['that is gone from beside its log', false, true],
  ])('%s is set aside with whatever files exist, with one warning', async (_name, hasFile, hasLog) => {
    const path = await temporaryPath();
    const held = await filled(path, 5);
    const log = await readFile(`${path}-wal`);
    held.close();
    if (hasFile) await writeFile(path, '');
    else await rm(path);
    if (hasLog) await writeFile(`${path}-wal`, log);
    const { stores, warnings } = open(path);
    expect(await records(stores).getKeys()).toEqual([]);
    expect(warnings).toEqual([expect.stringMatching(/damaged.*starts empty/)]);
    await records(stores).setItem('new', { it: 1 });
    stores.close();
    const kept = (await readdir(dirname(path))).filter((name) => name.includes('corrupt'));
    expect(kept.map((name) => name.replace(/\d+/, 'N')).sort()).toEqual([
      ...(hasFile ? ['state.db.corrupt-N'] : []),
      ...(hasLog ? ['state.db.corrupt-N-wal'] : []),
    ]);
    for (const name of kept) {
      expect(warnings[0]).toContain(name.replace('-wal', ''));
      const bytes = await readFile(join(dirname(path), name));
      expect(bytes.equals(name.endsWith('-wal') ? log : Buffer.alloc(0)), name).toBe(true);
    }
    const again = open(path);
    expect(await records(again.stores).getKeys()).toEqual(['new']);
    expect(again.warnings).toEqual([]);
  });

  it('of 0 bytes that another relay is about to fill is left alone', async () => {
    const path = await temporaryPath();
    open(path).stores.close();
    await writeFile(path, '');
    const filling = new Database(path, { timeout: 0 } as Database.Options);
    filling.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
    expect((await stat(path)).size).toBe(0);
    expect(() => open(path)).toThrow(StateInUseError);
    filling.exec('CREATE TABLE items (store TEXT, key TEXT, value TEXT); COMMIT');
    filling.close();
    expect(await asideOf(path)).toEqual([]);
    expect(open(path).warnings).toEqual([]);
  });

  it('with an invalid UTF-8 byte loses only that record, and does not end the process', async () => {
    const path = await temporaryPath();
    const stores = await filled(path, 3);
    await records(stores).setItem('hit', { text: 'MARK-IN-THE-VALUE' });
    await records(stores).setItem('MARK-IN-THE-KEY', { it: 1 });
    stores.close();
    const bytes = await readFile(path);
    for (const mark of ['MARK-IN-THE-VALUE', 'MARK-IN-THE-KEY']) bytes[bytes.indexOf(mark)] = 0xff;
    await writeFile(path, bytes);
    const { stores: later, warnings } = open(path);
    const keys = await records(later).getKeys();
    expect(keys).toHaveLength(5);
    expect(await records(later).getItem('k1')).toMatchObject({ at: 1 });
    expect(await records(later).getItem('hit')).toBeNull();
    const damaged = keys.find((key) => key.includes('ARK-IN-THE-KEY')) ?? '';
    expect(await records(later).getItem(damaged)).toBeNull();
    expect(warnings).toEqual([]);
  });

  it('does not overwrite a file that was set aside in the same second', async () => {
    const path = await temporaryPath();
    for (const text of ['first garbage '.repeat(300), 'second garbage '.repeat(300)]) {
      open(path).stores.close();
      await writeFile(path, text);
      open(path).stores.close();
    }
    const kept = await readdir(dirname(path));
    const texts = await Promise.all(
      kept.filter((name) => name.includes('corrupt')).map((name) => readFile(join(dirname(path), name), 'utf8')),
    );
    expect(texts.filter((text) => text.startsWith('first garbage'))).toHaveLength(1);
    expect(texts.filter((text) => text.startsWith('second garbage'))).toHaveLength(1);
  });

  it('is not assumed when the path cannot be opened for another reason', async () => {
    const path = await temporaryPath();
    await expect(async () => open(join(path, '..', '..', '..'))).rejects.toThrow();
    expect(existsSync(path)).toBe(false);
  });
});

describe('a copy of the state for a backup (11 §3)', () => {
  it('holds every value that was written before, whole, while writes go on', async () => {
    const path = await temporaryPath();
    const stores = await filled(path, 200);
    const copy = `${path}-copy`;
    await writeFile(copy, '', { mode: 0o600 });
    const writes = [records(stores).setItem('before', { at: 1 })];
    const copying = stores.snapshot?.(copy);
    // Both of one turn, after the copy was asked for: the copy has neither, or has both.
    for (const key of ['after-a', 'after-b']) writes.push(records(stores).setItem(key, { at: 2 }));
    await Promise.all([copying, ...writes]);
    const keys = [...readSnapshot(copy)].map((row) => row?.[1] ?? '');
    expect(keys.filter((key) => /^k\d+$/.test(key))).toHaveLength(200);
    expect(keys).toContain('before');
    expect([0, 2]).toContain(keys.filter((key) => key.startsWith('after-')).length);
    expect((await stat(copy)).mode & 0o777).toBe(0o600);
    expect(await records(stores).getKeys()).toHaveLength(203);
    await expect(stores.snapshot?.(join(path, 'nowhere'))).rejects.toThrow();
    await records(stores).setItem('later', { at: 3 });
    expect(await records(stores).getItem('later')).toEqual({ at: 3 });
  });

  it('a state that is held opens for no relay, has no log beside it, and is free again', async () => {
    const path = await temporaryPath();
    const stores = await filled(path);
    expect(() => holdState(path)).toThrow(StateInUseError);
    expect(() => openSoundState(path)).toThrow(StateInUseError);
    stores.close();
    const release = holdState(path);
    expect(() => openStateFile(path, () => {})).toThrow(StateInUseError);
    expect(await readdir(dirname(path))).toEqual(['state.db']);
    release();
    const { stores: again } = open(path);
    expect(await records(again).getKeys()).toHaveLength(40);
  });

  it('a damaged state is not opened, and stays as it is; none is none', async () => {
    const path = await temporaryPath();
    expect([openSoundState(path), holdState(path)()]).toEqual([null, undefined]);
    (await filled(path)).close();
    await writeFile(path, 'no database'.repeat(400));
    expect(() => openSoundState(path)).toThrow();
    expect(await readdir(dirname(path))).toEqual(['state.db']);
    expect(await readFile(path, 'utf8')).toContain('no database');
  });
});
