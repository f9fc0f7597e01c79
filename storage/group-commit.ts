import type { SqlExecutor } from './sql-driver.ts';

interface Statement {
  sql: string;
  values: string[];
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
      reject(error);
      return;
    }
    resolve();
  }

  return {
    /** Resolves when the write is durable; rejects when its transaction failed. */
    write(sql: string, ...values: string[]): Promise<void> {
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
