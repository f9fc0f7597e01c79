import { defineDriver } from 'unstorage';
import { type Deferred, deferred } from '../../lib/kit/deferred.ts';
import type { Backend } from '../../storage/backend.ts';

type Values = Map<string, string>;

interface Transaction {
  writes: { store: string; key?: string; change(): void }[];
  done: Deferred;
}

/**
 * A disk whose transactions become durable when the test says so. A process opens it as its backend; once the next one
 * has, what was held is lost, and nothing of the process before is stored any more.
 */
export class HeldState {
  readonly #stores = new Map<string, Values>();
  #lives = 0;
  /** Oldest first. */
  #held: Transaction[] = [];
  #isHeld = false;
  /** Stores whose transactions were refused since the last one that was not. */
  readonly #failing = new Map<string, unknown>();
  /** A transaction that writes to this key fails. */
  refused: string | undefined;

  constructor(refused?: string) {
    this.refused = refused;
  }

  /** What a crash does not lose. */
  durable(store: string): Map<string, unknown> {
    return new Map([...this.#values(store)].map(([key, text]) => [key, JSON.parse(text)]));
  }

  /** Number of transactions that wait to become durable. */
  get held(): number {
    return this.#held.length;
  }

  /** No transaction becomes durable any more. */
  hold(): void {
    this.#isHeld = true;
  }

  /** Makes the oldest transactions durable: all of them, and those to come, without a number. */
  release(count = Number.POSITIVE_INFINITY): void {
    if (count === Number.POSITIVE_INFINITY) this.#isHeld = false;
    for (const { writes, done } of this.#held.splice(0, count)) {
      if (writes.some(({ key }) => key !== undefined && key === this.refused)) {
        const error = new Error('the disk has refused it');
        for (const { store } of writes) this.#failing.set(store, error);
        done.reject(error);
        continue;
      }
      this.#failing.clear();
      for (const { change } of writes) change();
      done.resolve();
    }
  }

  /** The backend of a new process. */
  open(): Backend {
    const life = ++this.#lives;
    this.#held = [];
    this.#isHeld = false;
    /** The writes of this turn. */
    let turn: Transaction | undefined;
    let last: Promise<void> = Promise.resolve();

    const commit = () => {
      const own = turn as Transaction;
      turn = undefined;
      if (life !== this.#lives) return;
      this.#held.push(own);
      if (!this.#isHeld) this.release();
    };
    const write = (...[store, change, key]: [store: string, change: () => void, key?: string]): Promise<void> => {
      if (!turn) {
        turn = { writes: [], done: deferred() };
        last = turn.done.promise.catch(() => {});
        queueMicrotask(commit);
      }
      turn.writes.push({ store, change, key });
      return turn.done.promise;
    };
    const read = async <T>(get: (values: Values) => T, store: string): Promise<T> => {
      await last;
      return get(this.#values(store));
    };

    return {
      durable: true,
      failing: this.#failing,
      driver: defineDriver((store: string) => ({
        name: 'held',
        hasItem: (key) => read((values) => values.has(key), store),
        getItem: (key) => read((values) => values.get(key) ?? null, store),
        getKeys: (base = '') => read((values) => [...values.keys()].filter((key) => key.startsWith(base)), store),
        setItem: (key, value) => write(store, () => void this.#values(store).set(key, value), key),
        removeItem: (key) => write(store, () => void this.#values(store).delete(key)),
        clear: (base = '') =>
          write(store, () => {
            const values = this.#values(store);
            for (const key of [...values.keys()]) if (key.startsWith(base)) values.delete(key);
          }),
      })),
      batch: (work) => work(),
      close() {},
    };
  }

  #values(store: string): Values {
    const own = this.#stores.get(store) ?? new Map<string, string>();
    this.#stores.set(store, own);
    return own;
  }
}
