import type { SqlExecutor } from './sql-driver.ts';

/** The part of a Durable Object's `ctx.storage` that is used. */
export interface DurableObjectStorage {
  sql: { exec(sql: string, ...values: string[]): { toArray(): Record<string, unknown>[] } };
  transactionSync<T>(work: () => T): T;
}

/** A row holds 2 MB, and a character takes up to three bytes. */
const MAX_TEXT = 600_000;

/** SQLite of a Durable Object. The platform holds answers back until the write is durable (output gate). */
export function durableObjectExecutor(storage: DurableObjectStorage): SqlExecutor {
  return {
    maxText: MAX_TEXT,
    isSynchronous: true,
    run: (text, ...values) => void storage.sql.exec(text, ...values),
    all: (text, ...values) => storage.sql.exec(text, ...values).toArray(),
    transaction: (work) => storage.transactionSync(work),
    // The platform itself joins writes with no I/O between them: a longer turn would only delay the answer.
    atTurnEnd: (run) => queueMicrotask(run),
  };
}
