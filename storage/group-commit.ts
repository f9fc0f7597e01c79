import type { Row, SqlExecutor } from './sql-driver.ts';

export interface Statement {
  sql: string;
  /** The first parameter is the name of the store. */
  values: [store: string, ...rest: string[]];
}

/** Writes of one turn of the event loop, which share a transaction and its outcome. */
interface Batch {
  statements: Statement[];
  promise: Promise<void>;
  resolve(): void;
  reject(error: unknown): void;
  /** It failed together with others and is retried alone. */
  isAlone?: boolean;
}

type Read = () => void;

/** Milliseconds without a write after which the file is tidied up. */
const IDLE = 5_000;
/** Characters that may queue while the disk stalls. Beyond this, writes block the event loop. */
const MAX_WAITING = 16 * 1024 * 1024;

export type GroupCommit = ReturnType<typeof createGroupCommit>;

/**
 * Makes the writes of one turn of the event loop one transaction: one sync to disk for all of them, however many stores
 * and callers they come from. Where the executor commits off the event loop, writes made meanwhile share the next
 * transaction. Writes and reads keep the order of their calls. A failed transaction changes nothing and rejects every
 * write in it.
 */
export function createGroupCommit(executor: SqlExecutor) {
  /** The writes of this turn. */
  let turn: Batch | undefined;
  /** Calls of `batch` that have not returned. */
  let depth = 0;
  const queue: (Batch | Read)[] = [];
  /** Characters in `turn` and `queue`. */
  let waiting = 0;
  let isBusy = false;
  let isClosed = false;
  let idle: ReturnType<typeof setTimeout> | undefined;
  let lastWrite = 0;
  /** Stores whose writes have failed since the last transaction that did not, each with the reason. */
  const failing = new Map<string, unknown>();

  /** Begins to commit the writes so far. Never throws: the outcome goes to the writers. */
  function flush(): void {
    if (!turn) return;
    queue.push(turn);
    turn = undefined;
    work();
  }

  /** Runs the steps in order, until one outlasts this turn. */
  function work(): void {
    while (!isBusy) {
      const step = queue.shift();
      if (!step) return;
      if (typeof step === 'function') step();
      else {
        const later = commit(withFollowers(step), executor.commitLater ?? executor.transaction);
        if (later) begin(later);
      }
    }
  }

  /** A batch, and those behind it with no read in between. */
  function withFollowers(first: Batch): Batch[] {
    if (first.isAlone) return [first];
    const end = queue.findIndex((step) => typeof step === 'function' || step.isAlone);
    return [first, ...(queue.splice(0, end < 0 ? queue.length : end) as Batch[])];
  }

  /** The promise of a commit off the event loop, else undefined once it is over. */
  function commit(batches: Batch[], run: (work: () => void) => void | Promise<void>): Promise<void> | undefined {
    for (const { statements } of batches) waiting -= sizeOf(statements);
    try {
      const later = run(() => {
        for (const { statements } of batches) for (const { sql, values } of statements) executor.run(sql, ...values);
      });
      if (later)
        return later.then(
          () => succeeded(batches),
          (error) => failed(batches, error),
        );
      succeeded(batches);
    } catch (error) {
      failed(batches, error);
    }
    return undefined;
  }

  function succeeded(batches: Batch[]): void {
    failing.clear();
    for (const { resolve } of batches) resolve();
    lastWrite = Date.now();
    if (executor.maintain && !isClosed) idle ??= unref(setTimeout(whenIdle, IDLE));
  }

  function failed(batches: Batch[], error: unknown): void {
    // A failing disk would fail each of them; any other error may come from just one.
    if (
      batches.length > 1 &&
      !isClosed &&
      !/^SQLITE_(IOERR|FULL|READONLY)/.test(String((error as { code?: unknown })?.code))
    ) {
      for (const one of batches) one.isAlone = true;
      for (const { statements } of batches) waiting += sizeOf(statements);
      queue.unshift(...batches);
      return;
    }
    for (const { statements, reject } of batches) {
      for (const { values } of statements) failing.set(values[0], error);
      reject(error);
    }
  }

  function whenIdle(): void {
    const left = lastWrite + IDLE - Date.now();
    const isIdle = left <= 0 && !isBusy && !turn;
    idle = isIdle ? undefined : unref(setTimeout(whenIdle, left > 0 ? Math.min(left, IDLE) : IDLE));
    if (isIdle) begin(executor.maintain?.() ?? Promise.resolve());
  }

  /** Follows work off the event loop, during which nothing else may use the database. */
  function begin(later: Promise<void>): void {
    isBusy = true;
    const next = () => {
      isBusy = false;
      work();
    };
    // Maintenance that fails is tried again after the next write.
    void later.then(next, next);
  }

  /** Commits all queued writes before it returns, after any commit that runs off the event loop. */
  function drain(): void {
    if (turn) queue.push(turn);
    turn = undefined;
    for (let step = queue.shift(); step; step = queue.shift()) {
      if (typeof step === 'function') step();
      else commit([step], executor.transaction);
    }
  }

  /** Resolves when the statements, which stay in one transaction, are durable; rejects when it failed. */
  function writeAll(statements: readonly Statement[]): Promise<void> {
    if (isClosed) return Promise.reject(new Error('the state is closed'));
    if (!turn) {
      turn = newBatch();
      executor.atTurnEnd(flush);
    }
    const { promise } = turn;
    for (const statement of statements) turn.statements.push(statement);
    waiting += sizeOf(statements);
    if (waiting > MAX_WAITING && depth === 0) drain();
    return promise;
  }

  /** Reads committed data, after committing all earlier writes. */
  function read(sql: string, ...values: string[]): Row[] | Promise<Row[]> {
    if (depth > 0) return Promise.resolve().then(() => read(sql, ...values));
    flush();
    if (!isBusy && queue.length === 0) return executor.all(sql, ...values);
    return new Promise((resolve, reject) => {
      queue.push(() => {
        try {
          resolve(executor.all(sql, ...values));
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  return {
    failing: failing as ReadonlyMap<string, unknown>,

    maxText: executor.maxText,

    write: (sql: string, ...values: Statement['values']): Promise<void> => writeAll([{ sql, values }]),

    writeAll,

    /** Runs `work`, whose writes share a transaction, however many they are. Its reads wait until it has returned. */
    batch<T>(work: () => T): T {
      depth++;
      try {
        return work();
      } finally {
        depth--;
        if (waiting > MAX_WAITING && depth === 0) drain();
      }
    },

    read,

    /**
     * Writes the committed state to an empty file, after committing all earlier writes. Writes made meanwhile wait.
     * Rejects where the executor has no snapshots.
     */
    snapshot(path: string): Promise<void> {
      if (isClosed || !executor.snapshot) return Promise.reject(new Error('there is no state to copy'));
      flush();
      return new Promise((resolve, reject) => {
        queue.push(() => {
          const copying = executor.snapshot?.(path) ?? Promise.resolve();
          copying.then(resolve, reject);
          begin(copying);
        });
        work();
      });
    },

    /** Commits what has been written before it returns. The event loop waits for the disk. */
    drain,

    /** Commits all writes before it returns, and accepts no more: libsql would end the process. */
    close(): void {
      clearTimeout(idle);
      isClosed = true;
      drain();
      executor.close?.();
    },
  };
}

const sizeOf = (statements: readonly Statement[]): number => {
  let size = 0;
  for (const { values } of statements) for (const value of values) size += value.length;
  return size;
};

/** On Node, a pending timer must not keep a stopping process alive. */
function unref(timer: ReturnType<typeof setTimeout>): ReturnType<typeof setTimeout> {
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

/** `Promise.withResolvers`, which Node 20 lacks. */
function newBatch(): Batch {
  let resolve!: () => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { statements: [], promise, resolve, reject };
}
