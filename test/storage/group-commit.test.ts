import { copyFileSync, existsSync, statSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { createGroupCommit } from '../../storage/group-commit.ts';
import { createStores } from '../../storage/index.ts';
import { sqlBackend } from '../../storage/sql-backend.ts';
import { createTable, type SqlExecutor } from '../../storage/sql-driver.ts';
import { openStateFile } from '../../storage/sqlite.ts';
import { FAILURE, openLoose, POISON, poisonable, runTurn } from '../support/store-turns.ts';
import { cleanups, compare, directory, turnsOf } from './commits.ts';

afterAll(() => rm(directory, { recursive: true, force: true }));
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const fail = (message: string): never => {
  throw new Error(message);
};

let files = 0;
const newPath = () => join(directory, `${files++}`, 'state.db');

/** The files as a process killed now leaves them, under another name. */
function copyOf(path: string): string {
  const copy = join(directory, `copy-${files++}.db`);
  for (const suffix of ['', '-wal']) if (existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
  return copy;
}

function openFile(path: string) {
  const { executor, counted } = poisonable(openStateFile(path, fail));
  const stores = createStores('node', sqlBackend(executor));
  let isOpen = true;
  const close = () => {
    if (isOpen) stores.close();
    isOpen = false;
  };
  cleanups.push(close);
  return { path, stores, counted, executor, close };
}

describe('turns of writes and reads agree with a model that commits them one after another (design 4)', () => {
  it('in memory', async () => {
    await fc.assert(
      fc.asyncProperty(turnsOf(['a', 'b', 'c']), async (turns) => {
        const stores = createStores('node');
        await compare(turns, (turn) => runTurn(stores, turn));
      }),
      { numRuns: 100 },
    );
  });

  it('in a state file, also after a kill and with failing transactions', async () => {
    await fc.assert(
      fc.asyncProperty(turnsOf(['a', 'b', 'c', POISON]), fc.nat({ max: 8 }), async (turns, kill) => {
        let file = openFile(newPath());
        let turnsRun = 0;
        await compare(turns, async (turn) => {
          const results = await runTurn(file.stores, turn);
          if (turnsRun++ === kill) {
            const next = copyOf(file.path);
            file.close();
            file = openFile(next);
          }
          return results;
        });
        file.close();
      }),
      { numRuns: 40 },
    );
  });
});

describe('a turn of writes on a state file (design 4)', () => {
  it('is one transaction, whichever stores they are to', async () => {
    const { stores, counted } = openFile(newPath());
    const names = ['sessions', 'phone', 'phone-replies'] as const;
    await Promise.all(
      Array.from({ length: 90 }, (_, at) =>
        openLoose(stores, names[at % names.length] ?? 'phone').setItem(`k${at}`, { at }),
      ),
    );
    expect(counted.transactions).toBe(1);
    await openLoose(stores, 'sessions').setItem('next', {});
    expect(counted.transactions).toBe(2);
  });

  it('resolves only after its commit, and leaves nothing behind if the process is killed at any statement before', async () => {
    const path = newPath();
    const copies: string[] = [];
    const inner = openStateFile(path, fail);
    const executor: SqlExecutor = {
      ...inner,
      run(sql, ...values) {
        copies.push(copyOf(path));
        inner.run(sql, ...values);
      },
    };
    const stores = createStores('node', sqlBackend(executor));
    cleanups.push(() => stores.close());
    const store = openLoose(stores, 'sessions');
    await store.setItem('old', { n: 1 });
    copies.length = 0;
    let isResolved = false;
    const writes = Promise.all([store.setItem('new', { n: 2 }), store.removeItem('old'), store.setItem('x', {})]);
    writes.then(() => {
      isResolved = true;
    });
    await Promise.resolve();
    expect([copies.length, isResolved]).toEqual([0, false]);
    await writes;
    expect(copies).toHaveLength(3);
    for (const copy of copies) {
      expect(await openLoose(openFile(copy).stores, 'sessions').getKeys()).toEqual(['old']);
    }
    const after = openFile(copyOf(path)).stores;
    expect((await openLoose(after, 'sessions').getKeys()).sort()).toEqual(['new', 'x']);
  });

  it('is committed when the stores are closed before the turn ends', async () => {
    const { stores, path, close } = openFile(newPath());
    const write = openLoose(stores, 'sessions').setItem('a', { n: 1 });
    close();
    await write;
    expect(await openLoose(openFile(path).stores, 'sessions').getItem('a')).toEqual({ n: 1 });
  });

  it('does not harm the next one by failing', async () => {
    const { stores } = openFile(newPath());
    const [sessions, phone] = [openLoose(stores, 'sessions'), openLoose(stores, 'phone')];
    const settled = await Promise.allSettled([
      sessions.setItem('a', {}),
      phone.setItem(POISON, {}),
      sessions.setItem('b', {}),
    ]);
    expect(settled.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    await Promise.all([sessions.setItem('c', {}), phone.setItem('d', {})]);
    expect([await sessions.getKeys(), await phone.getKeys()]).toEqual([['c'], ['d']]);
  });

  it('rejects every write if the commit itself fails', async () => {
    const inner = openStateFile(newPath(), fail);
    let broken = false;
    const breaking = (work: () => void) => () => {
      work();
      if (broken) throw new Error(FAILURE);
    };
    const stores = createStores(
      'node',
      sqlBackend({
        ...inner,
        transaction: (work) => inner.transaction(breaking(work)),
        commitLater: (work) => inner.commitLater?.(breaking(work)) ?? Promise.reject(new Error('none')),
      }),
    );
    cleanups.push(() => stores.close());
    const store = openLoose(stores, 'sessions');
    broken = true;
    const settled = await Promise.allSettled([store.setItem('a', {}), store.setItem('b', {})]);
    expect(settled).toEqual(
      [1, 2].map(() => ({ status: 'rejected', reason: expect.objectContaining({ message: FAILURE }) })),
    );
    broken = false;
    await store.setItem('c', {});
    expect(await store.getKeys()).toEqual(['c']);
  });
});

describe('a commit off the event loop (design 4)', () => {
  /** A state file whose commits last until the case ends them. */
  function held() {
    const path = newPath();
    const inner = openStateFile(path, fail);
    const ends: ((error?: Error) => void)[] = [];
    const statements: number[] = [];
    const stores = createStores(
      'node',
      sqlBackend({
        ...inner,
        async commitLater(work) {
          await inner.commitLater?.(work);
          await new Promise<void>((resolve, reject) => ends.push((error) => (error ? reject(error) : resolve())));
        },
        run(sql, ...values) {
          statements.push(ends.length);
          if (values[1] === 'too big') throw new Error('string or blob too big');
          inner.run(sql, ...values);
        },
      }),
    );
    let isOpen = true;
    const close = () => {
      if (isOpen) stores.close();
      isOpen = false;
    };
    cleanups.push(close);
    const next = (count: number) => vi.waitFor(() => expect(ends).toHaveLength(count));
    return { path, stores, ends, statements, next, close, store: openLoose(stores, 'sessions') };
  }

  it('leaves the event loop to others, and takes what they write meanwhile into one next transaction', async () => {
    const { store, ends, statements, next } = held();
    const settled: string[] = [];
    const write = (key: string) => store.setItem(key, {}).then(() => settled.push(key));
    const first = write('a');
    await next(1);
    const rest: Promise<number>[] = [];
    for (const key of ['b', 'c', 'd']) {
      rest.push(write(key));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect([settled, statements.length]).toEqual([[], 2]);
    ends[0]?.();
    await first;
    await next(2);
    expect(settled).toEqual(['a']);
    ends[1]?.();
    await Promise.all(rest);
    expect(settled).toEqual(['a', 'b', 'c', 'd']);
    expect(ends).toHaveLength(2);
  });

  it('shows a read what was written before it, and nothing that was written after', async () => {
    const { store, ends, next } = held();
    void store.setItem('a', { n: 1 });
    await next(1);
    void store.setItem('a', { n: 2 });
    const read = store.getItem('a');
    void store.setItem('a', { n: 3 });
    ends[0]?.();
    await next(2);
    ends[1]?.();
    expect(await read).toEqual({ n: 2 });
    await next(3);
    ends[2]?.();
  });

  it('is waited for by close, which commits what has come meanwhile', async () => {
    const { path, store, next, close } = held();
    void store.setItem('a', { n: 1 });
    await next(1);
    const write = store.setItem('b', { n: 2 });
    close();
    await write;
    expect((await openLoose(openFile(path).stores, 'sessions').getKeys()).sort()).toEqual(['a', 'b']);
    await expect(store.setItem('c', {})).rejects.toThrow('closed');
  });

  /** Ends the turn, whose commit has then been given to a thread, which may not have begun with it. */
  const endTurn = () => new Promise((resolve) => setImmediate(resolve));
  /** Overtaken every second time or so, if at all. */
  const ROUNDS = 20;

  it('is not overtaken by close while its thread is starting', async () => {
    const path = newPath();
    for (let n = 0; n < ROUNDS; n++) {
      const { stores, close } = openFile(path);
      const write = openLoose(stores, 'sessions').setItem(`k${n}`, {});
      await endTurn();
      close();
      await write;
    }
    expect(await openLoose(openFile(path).stores, 'sessions').getKeys()).toHaveLength(ROUNDS);
  });

  it('is not overtaken by writes that do not wait for it while its thread is starting', async () => {
    const executor = openStateFile(newPath(), fail);
    createTable(executor);
    const commits = createGroupCommit(executor);
    cleanups.push(commits.close);
    const put = (value: string) =>
      commits.write('REPLACE INTO items (store, key, value) VALUES (?, ?, ?)', 's', 'k', value);
    for (let n = 0; n < ROUNDS; n++) {
      const first = put(`first ${n}`);
      await endTurn();
      const second = put(`second ${n}`);
      commits.drain();
      await Promise.all([first, second]);
      expect(await commits.read('SELECT value FROM items')).toEqual([{ value: `second ${n}` }]);
    }
  });

  it('rejects only the writes of the turn that fails, when several share a transaction', async () => {
    const { store, ends, next } = held();
    const first = store.setItem('a', {});
    await next(1);
    const writes: Promise<unknown>[] = [];
    for (const key of ['b', 'too big', 'c']) {
      writes.push(store.setItem(key, {}));
      writes.at(-1)?.catch(() => {});
      await new Promise((resolve) => setImmediate(resolve));
    }
    ends[0]?.();
    await first;
    await next(2);
    ends[1]?.();
    await next(3);
    ends[2]?.();
    expect(await Promise.allSettled(writes)).toMatchObject([
      { status: 'fulfilled' },
      { status: 'rejected', reason: { message: 'string or blob too big' } },
      { status: 'fulfilled' },
    ]);
    expect((await store.getKeys()).sort()).toEqual(['a', 'b', 'c']);
  });

  it('holds 16 MiB at most: with more, the event loop waits for the disk', async () => {
    const { store, next } = held();
    void store.setItem('a', {});
    await next(1);
    const big = { text: 'x'.repeat(1024 * 1024) };
    const writes = Array.from({ length: 17 }, (_, at) => store.setItem(`big${at}`, big));
    await Promise.all(writes.slice(0, 16));
  });
});

describe('a state file that nobody writes to for 5 seconds (01 §6.7)', () => {
  async function idle() {
    vi.advanceTimersByTime(6_000);
    vi.useRealTimers();
  }
  const size = (path: string) => statSync(path).size;

  it('has an empty log: a damaged byte there costs nothing', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    const { path, stores } = openFile(newPath());
    await openLoose(stores, 'sessions').setItem('a', { n: 1 });
    expect(size(`${path}-wal`)).toBeGreaterThan(0);
    await idle();
    await vi.waitFor(() => expect(size(`${path}-wal`)).toBe(0));
    await openLoose(stores, 'sessions').setItem('b', { n: 2 });
    expect((await openLoose(openFile(copyOf(path)).stores, 'sessions').getKeys()).sort()).toEqual(['a', 'b']);
  });

  it('gives back the space of what is gone', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    const { path, stores } = openFile(newPath());
    const store = openLoose(stores, 'sessions');
    await store.setItem('kept', { n: 1 });
    const text = 'x'.repeat(1_000);
    await Promise.all(Array.from({ length: 4_000 }, (_, at) => store.setItem(`k${at}`, { text })));
    await Promise.all(Array.from({ length: 4_000 }, (_, at) => store.removeItem(`k${at}`)));
    await idle();
    await vi.waitFor(() => expect(size(`${path}-wal`)).toBe(0));
    await vi.waitFor(() => expect(size(path)).toBeLessThan(100_000), 10_000);
    expect(await store.getKeys()).toEqual(['kept']);
    expect(await store.getItem('kept')).toEqual({ n: 1 });
  });
});
