import type { SqlExecutor } from '../../storage/sql-driver.ts';

/** An executor whose writes fail while `isBroken`, as on a full disk. */
export const breakable = (executor: SqlExecutor, isBroken: () => boolean): SqlExecutor => ({
  ...executor,
  run(sql, ...values) {
    const isWrite = sql.startsWith('INSERT') || sql.startsWith('DELETE');
    if (isWrite && isBroken()) throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
    executor.run(sql, ...values);
  },
});
