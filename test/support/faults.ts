import type { FileHandle } from 'node:fs/promises';

/** Makes one call fail, of all that go through what it wraps. */
export interface Faults {
  /** The `n`-th call from now on fails with this errno. */
  arm(n: number, code: string): void;
  /** No call fails any more. Returns how many there were, and the name of the one that failed. */
  disarm(): { calls: number; failed: string | undefined };
  /** `node:fs/promises`, and the files that it opens. Closing never fails: Linux closes the descriptor all the same. */
  wrapFs<T extends object>(module: T): T;
  /** An object of asynchronous functions, such as a part of the host or a store. Those in `keep` stay as they are. */
  wrap<T extends object>(name: string, target: T, keep?: readonly string[]): T;
}

export function createFaults(): Faults {
  let [calls, at, code] = [0, Number.POSITIVE_INFINITY, ''];
  let failed: string | undefined;

  async function strike(name: string): Promise<void> {
    calls++;
    if (calls !== at) return;
    failed = name;
    throw Object.assign(new Error(`${code}: injected into ${name}`), { code });
  }

  const wrap = <T extends object>(name: string, target: T, keep: readonly string[] = []): T =>
    new Proxy(target, {
      get(_, property) {
        const value = Reflect.get(target, property, target);
        if (typeof value !== 'function') return value;
        if (typeof property === 'symbol' || keep.includes(property)) return value.bind(target);
        return async (...given: unknown[]) => {
          await strike(`${name}.${property}`);
          return value.apply(target, given);
        };
      },
    });

  function wrapFs<T extends object>(module: T): T {
    const wrapped = Object.fromEntries(
      Object.entries(module).map(([name, value]) => {
        if (typeof value !== 'function' || name === 'watch') return [name, value];
        const call = async (...given: unknown[]) => {
          await strike(name);
          const result = await value(...given);
          return name === 'open' ? wrap('file', result as FileHandle, ['close']) : result;
        };
        return [name, call];
      }),
    );
    return { ...wrapped, default: wrapped } as T;
  }

  return {
    arm(n, errno) {
      [calls, at, code] = [0, n, errno];
      failed = undefined;
    },
    disarm() {
      at = Number.POSITIVE_INFINITY;
      return { calls, failed };
    },
    wrapFs,
    wrap,
  };
}

/** The faults of the test file: its mock of `node:fs/promises` and its cases share them. */
export const faults = createFaults();

/** Calls of one request that may fail, at most: an end for a case that never stops calling. */
const MAX_CALLS = 2_000;

/**
 * Repeats an action until every call that it makes has failed once, with each errno, and judges each outcome. The action
 * must do the same each time. Returns how many calls there were.
 */
export async function withEveryFault<T>(
  act: () => Promise<T>,
  judge: (outcome: T, fault: string) => void | Promise<void>,
  codes: readonly string[] = ['EMFILE', 'EIO'],
): Promise<number> {
  let most = 0;
  for (const code of codes) {
    for (let n = 1; ; n++) {
      if (n > MAX_CALLS) throw new Error(`more than ${MAX_CALLS} calls`);
      faults.arm(n, code);
      const outcome = await act();
      const { calls, failed } = faults.disarm();
      await judge(outcome, `${code} of ${failed ?? 'none'} (${n})`);
      most = Math.max(most, n - 1);
      if (failed === undefined && calls < n) break;
    }
  }
  return most;
}
