import type { SqlExecutor } from './sql-driver.ts';

interface Statement {
  sql: string;
  /** The first one names the store. */
  values: [store: string, ...rest: string[]];
}

export type GroupCommit = ReturnType<typeof createGroupCommit>;

/**
 * Makes the writes of one turn of the event loop one transaction: one sync to disk for all of them, however many
 * stores and callers they come from. Writes keep the order in which they were asked for. A failed transaction changes
 * nothing and rejects every write in it. The batch needs no bound of its own: nothing is read from the network while
 * the turn lasts.
 */
export function createGroupCommit(executor: SqlExecutor) {
  let batch: Statement[] = [];
  let isClosed = false;
  /** Stores whose writes have failed since the last transaction that did not, each with the reason. */
  const failing = new Map<string, unknown>();
  /** Outcome of the batch. Its writers share it. */
  let outcome: { promise: Promise<void>; resolve(): void; reject(error: unknown): void } | undefined;

  /** Commits what has been written so far, now. Never throws: the outcome is told to the writers. */
  function flush(): void {
    if (!outcome) return;
    const { resolve, reject } = outcome;
    const statements = batch;
    batch = [];
    outcome = undefined;
    try {
      executor.transaction(() => {
        for (const { sql, values } of statements) executor.run(sql, ...values);
      });
    } catch (error) {
      for (const { values } of statements) failing.set(values[0], error);
      reject(error);
      return;
    }
    failing.clear();
    resolve();
  }

  return {
    failing: failing as ReadonlyMap<string, unknown>,

    /** Resolves when the write is durable; rejects when its transaction failed. */
    write(sql: string, ...values: Statement['values']): Promise<void> {
      if (isClosed) return Promise.reject(new Error('the state is closed'));
      if (!outcome) {
        outcome = withResolvers();
        executor.atTurnEnd(flush);
      }
      batch.push({ sql, values });
      return outcome.promise;
    },

    /** Reads what is committed, having committed what was written before. */
    read(sql: string, ...values: string[]): Record<string, unknown>[] {
      flush();
      return executor.all(sql, ...values);
    },

    flush,

    /** Commits what has been written, and takes no more: libsql would end the process. */
    close(): void {
      flush();
      isClosed = true;
      executor.close?.();
    },
  };
}

/** `Promise.withResolvers`, which Node 20 lacks. */
function withResolvers() {
  let resolve!: () => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}
