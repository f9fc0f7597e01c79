import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { DatabaseRow, HostDatabases } from '../index.ts';
import { type Answer, createReader, type Question } from './database-thread.ts';

export interface DatabasesOptions {
  /** Milliseconds a query may take, waiting included, before it has no rows. */
  timeout?: number;
  /** Milliseconds of that to wait for a lock. */
  busyTimeout?: number;
}

const TIMEOUT = 2_000;
const BUSY_TIMEOUT = 500;
const MAX_ROWS = 5_000;
const MAX_COPY = 128 * 1024 * 1024;
/** Queries that wait for the thread. */
const MAX_PENDING = 256;
/** Threads that may still be in a query which was given up: nothing can interrupt one. */
const MAX_STUCK = 2;
const HEAP_MB = 64;

/** The thread's whole program. The reader goes in as text: see `createReader`. */
const PROGRAM = `
const { parentPort, workerData } = require('node:worker_threads');
const read = (${createReader.toString()})({
  ...workerData, fs: require('node:fs'), path: require('node:path'), Database: require(workerData.libsql),
});
parentPort.on('message', (question) => parentPort.postMessage(read(question)));
`;

interface Thread {
  worker: Worker;
  pending: Map<number, (rows: DatabaseRow[] | null) => void>;
}

/**
 * SQLite files of other programs, read in a thread of its own because libsql is synchronous. A thread answers what is
 * asked while it works and ends when nothing is left: libsql keeps a closed file open until its statements are
 * collected, and the agent could not tidy up its log meanwhile.
 */
export function createDatabases({
  timeout = TIMEOUT,
  busyTimeout = BUSY_TIMEOUT,
}: DatabasesOptions = {}): HostDatabases {
  const libsql = createRequire(import.meta.url).resolve('libsql');
  let current: Thread | undefined;
  let stuck = 0;
  let lastId = 0;

  function start(): Thread {
    const worker = new Worker(PROGRAM, {
      eval: true,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
      workerData: { libsql, temporary: tmpdir(), busyTimeout, maxRows: MAX_ROWS, maxCopy: MAX_COPY },
    });
    const thread: Thread = { worker, pending: new Map() };
    worker.unref();
    worker.on('message', ({ id, rows }: Answer) => settle(thread, id, rows));
    // `error` is followed by `exit`.
    worker.on('error', () => {});
    worker.on('exit', () => end(thread));
    return thread;
  }

  function settle(thread: Thread, id: number, rows: DatabaseRow[] | null): void {
    const resolve = thread.pending.get(id);
    thread.pending.delete(id);
    if (thread.pending.size === 0) end(thread);
    resolve?.(rows);
  }

  /** Ends a thread, as soon as the query it may be in returns. Whoever still waits for it has no rows. */
  function end(thread: Thread): void {
    if (current === thread) current = undefined;
    const waiting = [...thread.pending.values()];
    thread.pending.clear();
    void thread.worker.terminate();
    for (const resolve of waiting) resolve(null);
  }

  function giveUp(thread: Thread): void {
    stuck++;
    thread.worker.once('exit', () => stuck--);
    end(thread);
  }

  return {
    async read(query) {
      if (stuck >= MAX_STUCK) return null;
      if (current && current.pending.size >= MAX_PENDING) return null;
      let thread: Thread;
      try {
        current ??= start();
        thread = current;
      } catch {
        return null;
      }
      const id = ++lastId;
      let timer: NodeJS.Timeout | undefined;
      try {
        return await new Promise((resolve) => {
          thread.pending.set(id, resolve);
          timer = setTimeout(() => giveUp(thread), timeout);
          thread.worker.postMessage({ ...query, id } satisfies Question);
        });
      } finally {
        clearTimeout(timer);
      }
    },
  };
}
