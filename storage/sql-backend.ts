import type { Backend } from './backend.ts';
import { createGroupCommit } from './group-commit.ts';
import { createLookups, lookupsOf } from './lookups.ts';
import { createTable, readEntries, type SqlExecutor, sqlDriver } from './sql-driver.ts';

/** Keeps stores in one table of a runtime's SQLite. The writes of one turn of the event loop are one transaction. */
export function sqlBackend(executor: SqlExecutor): Backend {
  createTable(executor);
  const { isSynchronous } = executor;
  if (isSynchronous) createLookups(executor);
  const commits = createGroupCommit(executor);
  return {
    durable: true,
    failing: commits.failing,
    driver: (store) => sqlDriver({ commits, store }),
    batch: commits.batch,
    entries: (store, base) => readEntries(commits, store, base),
    ...(isSynchronous && { lookups: (store) => lookupsOf(executor, store) }),
    ...(executor.snapshot && { snapshot: commits.snapshot }),
    close: commits.close,
  };
}
