import type { Clock } from '../../kit/clock.ts';

/** `work`, or after `limit` milliseconds `instead`; a failure counts as no result too. */
export function within<T>(clock: Clock, limit: number, work: Promise<T>, instead: (reason: string) => T): Promise<T> {
  return new Promise((resolve) => {
    const cancel = clock.after(limit, () => resolve(instead(`nothing within ${limit / 1000} s`)));
    work
      .catch((error: unknown) => instead(error instanceof Error ? error.message : String(error)))
      .then((result) => {
        cancel();
        resolve(result);
      });
  });
}
