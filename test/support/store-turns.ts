import type { Storage } from 'unstorage';
import type { StoreName, Stores } from '../../storage/schema.ts';
import type { SqlExecutor } from '../../storage/sql-driver.ts';

/** A store as the driver sees it: any JSON under any key. */
export const openLoose = (stores: Stores, name: StoreName) => stores.open(name) as unknown as Storage<object>;

export const STORES = ['sessions', 'phone'] as const;

/** A write with this key makes its transaction fail. */
export const POISON = 'poison';

export type Operation = { store: (typeof STORES)[number] } & (
  | { do: 'set'; key: string; value: number }
  | { do: 'remove'; key: string }
  | { do: 'clear' }
  | { do: 'get'; key: string }
  | { do: 'has'; key: string }
  | { do: 'keys' }
);

/** The value of a read, `written`, or an error message. */
export type Result = unknown;

/** Runs operations in one turn of the event loop, without awaiting each before the next. */
export async function runTurn(stores: Stores, operations: readonly Operation[]): Promise<Result[]> {
  const settled = await Promise.allSettled(operations.map((operation) => run(stores, operation)));
  return settled.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as Error).message));
}

function run(stores: Stores, operation: Operation): Promise<unknown> {
  const store = openLoose(stores, operation.store);
  switch (operation.do) {
    case 'set':
      return store.setItem(operation.key, { n: operation.value }).then(() => 'written');
    case 'remove':
      return store.removeItem(operation.key).then(() => 'written');
    case 'clear':
      return store.clear().then(() => 'written');
    case 'get':
      return store.getItem(operation.key);
    case 'has':
      return store.hasItem(operation.key);
    case 'keys':
      return store.getKeys().then((keys) => keys.sort());
  }
}

export const FAILURE = 'disk I/O error';

/** An executor whose transactions fail in the middle at a `POISON` key. Counts the others. */
export function poisonable(executor: SqlExecutor) {
  const counted = { transactions: 0 };
  const poisoned: SqlExecutor = {
    ...executor,
    run(sql, ...values) {
      if (values[1] === POISON) throw Object.assign(new Error(FAILURE), { code: 'SQLITE_IOERR' });
      executor.run(sql, ...values);
    },
    transaction(work) {
      executor.transaction(work);
      counted.transactions++;
    },
    commitLater:
      executor.commitLater &&
      (async (work) => {
        await executor.commitLater?.(work);
        counted.transactions++;
      }),
  };
  return { executor: poisoned, counted };
}
