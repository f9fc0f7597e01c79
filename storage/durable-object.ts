import type { SqlExecutor } from './sql-driver.ts';

/** The part of a Durable Object's `ctx.storage.sql` that is used. */
export interface DurableObjectSql {
  exec(sql: string, ...values: string[]): { toArray(): Record<string, unknown>[] };
}

/** SQLite of a Durable Object. The platform holds answers back until the write is durable (output gate). */
export function durableObjectExecutor(sql: DurableObjectSql): SqlExecutor {
  return {
    run: (text, ...values) => void sql.exec(text, ...values),
    all: (text, ...values) => sql.exec(text, ...values).toArray(),
  };
}
