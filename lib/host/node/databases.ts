import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DatabaseResult, HostDatabases } from '../index.ts';
import { createReader, type ReaderRequest, type ReaderResponse } from './database-reader.ts';

export interface DatabasesOptions {
  /** Milliseconds for a query, including its wait. */
  timeout?: number;
  /** Milliseconds to wait for a lock. */
  busyTimeout?: number;
  /** Milliseconds without a query after which the reader exits. */
  idle?: number;
}

const TIMEOUT = 2_500;
const BUSY_TIMEOUT = 500;
const IDLE = 10_000;
const MAX_ROWS = 5_000;
const MAX_LENGTH = 4 * 1024 * 1024;
const MAX_COPY = 128 * 1024 * 1024;
/** Queries waiting for the reader. */
const MAX_PENDING = 256;
const UNREADABLE: DatabaseResult = { rows: null, problem: 'unreadable' };
/** Variables that Node may need to start. The reader gets no others. */
const ENVIRONMENT = ['PATH', 'HOME', 'LD_LIBRARY_PATH', 'SYSTEMROOT'];

/**
 * The reader's program. libsql keeps a closed database open until its statements are collected, which would keep the
 * agent from removing its log. So garbage is collected before each response.
 */
const program = (libsql: string, limits: Record<string, unknown>) => `
const read = (${createReader.toString()})({
  ...${JSON.stringify(limits)}, fs: require('node:fs'), path: require('node:path'),
  Database: require(${JSON.stringify(libsql)}),
});
process.on('message', (request) => {
  const answer = read(request);
  gc();
  setImmediate(() => process.send(answer));
});
process.on('disconnect', () => process.exit());
`;

interface Reader {
  child: ChildProcess;
  /** Directory for private copies, which a killed reader cannot remove itself. */
  scratch: string;
  pending: Map<number, (result: DatabaseResult) => void>;
  idle?: NodeJS.Timeout;
}

/**
 * Reads SQLite files of other programs in a child process: libsql is synchronous and cannot be interrupted, and a
 * thread inside it would delay the exit of the relay. The process starts with the first query, and ends after a while
 * without one, or when a query takes too long.
 */
export function createDatabases({
  timeout = TIMEOUT,
  busyTimeout = BUSY_TIMEOUT,
  idle = IDLE,
}: DatabasesOptions = {}): HostDatabases {
  let current: Reader | undefined;
  let lastId = 0;

  function start(): Reader {
    const libsql = createRequire(import.meta.url).resolve('libsql');
    const scratch = join(tmpdir(), `svc-relay-read-${randomBytes(12).toString('hex')}`);
    const limits = { scratch, busyTimeout, maxRows: MAX_ROWS, maxLength: MAX_LENGTH, maxCopy: MAX_COPY };
    const child = spawn(
      process.execPath,
      ['--expose-gc', '--max-old-space-size=64', '--eval', program(libsql, limits)],
      {
        stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
        serialization: 'advanced',
        env: Object.fromEntries(ENVIRONMENT.map((name) => [name, process.env[name]])),
      },
    );
    const reader: Reader = { child, scratch, pending: new Map() };
    // It must not keep a stopping relay alive, and exits by itself once the relay is gone.
    child.unref();
    child.channel?.unref();
    child.on('message', (answer) => settle(reader, answer as ReaderResponse));
    child.on('error', () => end(reader));
    child.on('exit', () => {
      end(reader);
      discard(reader);
    });
    return reader;
  }

  function settle(reader: Reader, { id, result }: ReaderResponse): void {
    const resolve = reader.pending.get(id);
    reader.pending.delete(id);
    if (reader.pending.size === 0 && current === reader) {
      reader.idle = setTimeout(() => end(reader), idle).unref();
    }
    resolve?.(result);
  }

  /** Kills a reader, even in the middle of a query. Pending queries get no rows. */
  function end(reader: Reader): void {
    if (current === reader) current = undefined;
    clearTimeout(reader.idle);
    reader.child.kill('SIGKILL');
    const waiting = [...reader.pending.values()];
    reader.pending.clear();
    for (const resolve of waiting) resolve(UNREADABLE);
  }

  const discard = ({ scratch }: Reader): void => {
    try {
      rmSync(scratch, { recursive: true, force: true });
    } catch {
      // Leftovers are readable by their owner only.
    }
  };

  return {
    async read(query) {
      if (current && current.pending.size >= MAX_PENDING) return UNREADABLE;
      let reader: Reader;
      try {
        current ??= start();
        reader = current;
      } catch {
        return UNREADABLE;
      }
      // Without free descriptors, Node starts no process and gives the child no channel. Its `error` event follows.
      if (!reader.child.connected) {
        end(reader);
        return UNREADABLE;
      }
      clearTimeout(reader.idle);
      const id = ++lastId;
      let timer: NodeJS.Timeout | undefined;
      try {
        return await new Promise((resolve) => {
          reader.pending.set(id, resolve);
          timer = setTimeout(() => end(reader), timeout);
          // A send fails if the process has ended, and its `exit` event follows.
          reader.child.send({ ...query, id } satisfies ReaderRequest, () => {});
        });
      } finally {
        clearTimeout(timer);
      }
    },

    close() {
      const reader = current;
      if (!reader) return;
      end(reader);
      // The relay may exit before the process does.
      discard(reader);
    },
  };
}
