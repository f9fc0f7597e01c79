import type { Clock } from './clock.ts';

export interface Timeout {
  clock: Clock;
  /** Milliseconds. */
  timeout: number;
  /** Ends the wait early, as if the time were up. */
  signal?: AbortSignal;
}

/**
 * The outcome of `work`, or once the time is up, what `late` returns or throws. `work` itself continues; a later
 * failure of it is ignored.
 */
export function withTimeout<T, L>(
  { clock, timeout, signal }: Timeout,
  work: Promise<T>,
  onTimeout: () => L,
): Promise<T | L> {
  return new Promise((resolve, reject) => {
    const end = () => {
      cancel();
      signal?.removeEventListener('abort', expire);
    };
    const expire = () => {
      end();
      try {
        resolve(onTimeout());
      } catch (error) {
        reject(error);
      }
    };
    const cancel = clock.after(timeout, expire);
    work.then(resolve, reject).finally(end);
    if (signal?.aborted) expire();
    else signal?.addEventListener('abort', expire);
  });
}

/** Resolves after `timeout` milliseconds, or as soon as `signal` aborts. */
export const sleep = (timing: Timeout): Promise<void> => withTimeout(timing, new Promise<never>(() => {}), () => {});

export interface Deadline {
  clock: Clock;
  /** Milliseconds for the whole call. */
  timeout: number;
  /** Aborts the call. */
  signal?: AbortSignal;
  /** The error of a call that fails once the time is up; by default the call's own. */
  timeoutError?(): unknown;
}

/**
 * Runs a call with a new signal that aborts with the given signal, when the time is up, and when the call is over,
 * because a response that was not read to its end still holds its connection.
 */
export async function withDeadline<T>(
  { clock, timeout, signal, timeoutError }: Deadline,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const end = new AbortController();
  const abort = () => end.abort();
  let isLate = false;
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  const cancel = clock.after(timeout, () => {
    isLate = true;
    abort();
  });
  try {
    return await call(end.signal);
  } catch (error) {
    throw isLate && timeoutError ? timeoutError() : error;
  } finally {
    cancel();
    signal?.removeEventListener('abort', abort);
    abort();
  }
}
