import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect } from 'vitest';
import { FAILURE, type Operation, POISON, type Result, STORES } from '../support/store-turns.ts';

export const directory = await mkdtemp(join(tmpdir(), 'svc-relay-group-'));

export const cleanups: (() => unknown)[] = [];

/** The state as it should be: writes between two reads succeed or fail as one. */
class Model {
  #state = Object.fromEntries(STORES.map((store) => [store, new Map<string, number>()]));

  run(operations: readonly Operation[]): Result[] {
    const results: Result[] = [];
    let from = 0;
    for (const [at, { do: kind }] of operations.entries()) {
      if (kind !== 'get' && kind !== 'has' && kind !== 'keys') continue;
      results.push(...this.#commit(operations.slice(from, at)), this.#read(operations[at] as Operation));
      from = at + 1;
    }
    return [...results, ...this.#commit(operations.slice(from))];
  }

  #read(operation: Operation): Result {
    const store = this.#state[operation.store] as Map<string, number>;
    if (operation.do === 'keys') return [...store.keys()].sort();
    const value = 'key' in operation ? store.get(operation.key) : undefined;
    if (operation.do === 'has') return value !== undefined;
    return value === undefined ? null : { n: value };
  }

  #commit(writes: readonly Operation[]): Result[] {
    if (writes.some((write) => 'key' in write && write.key === POISON)) return writes.map(() => FAILURE);
    for (const write of writes) {
      const store = this.#state[write.store] as Map<string, number>;
      if (write.do === 'set') store.set(write.key, write.value);
      else if (write.do === 'remove') store.delete(write.key);
      else store.clear();
    }
    return writes.map(() => 'written');
  }
}

const operation = (keys: string[]): fc.Arbitrary<Operation> => {
  const key = fc.constantFrom(...keys);
  const store = fc.constantFrom(...STORES);
  return fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('set' as const), store, key, value: fc.nat() }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('remove' as const), store, key }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('clear' as const), store }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('get' as const), store, key }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('has' as const), store, key }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('keys' as const), store }) },
  );
};
export const turnsOf = (keys: string[]) => fc.array(fc.array(operation(keys), { maxLength: 12 }), { maxLength: 8 });

const EVERYTHING = STORES.flatMap((store): Operation[] => [
  { do: 'keys', store },
  ...['a', 'b', 'c', POISON].map((key): Operation => ({ do: 'get', store, key })),
]);

/** Runs turns against a fresh model, and looks at everything after each of them. */
export async function compare(turns: Operation[][], run: (turn: Operation[]) => Promise<Result[]>): Promise<void> {
  const model = new Model();
  for (const turn of turns) {
    expect(await run(turn)).toEqual(model.run(turn));
    expect(await run(EVERYTHING)).toEqual(model.run(EVERYTHING));
  }
}
