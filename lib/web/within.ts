import type { Clock } from '../kit/clock.ts';

export interface Within {
  clock: Clock;
  /** Milliseconds for the whole call. */
  timeout: number;
  signal: AbortSignal;
  /** Time is up: called before the call ends. */
  onLate?(): void;
}

/**
 * Runs a call to another server with a signal of its own, which ends with the given one, when time is up, and when the
 * call is over: of an answer that was not read to its end, the connection is still open.
 */
export async function within<T>(
  { clock, timeout, signal, onLate }: Within,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const end = new AbortController();
  const abort = () => end.abort();
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  const cancel = clock.after(timeout, () => {
    onLate?.();
    abort();
  });
  try {
    return await call(end.signal);
  } finally {
    cancel();
    signal.removeEventListener('abort', abort);
    abort();
  }
}
