import type { Clock } from '../../kit/clock.ts';

/** Resolves after `ms`, or as soon as `closed` is aborted. */
export function sleep(clock: Clock, ms: number, closed: AbortSignal): Promise<void> {
  if (closed.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const wake = () => {
      cancel();
      closed.removeEventListener('abort', wake);
      resolve();
    };
    const cancel = clock.after(ms, wake);
    closed.addEventListener('abort', wake);
  });
}

/** What `work` gives, or `late` when it takes longer than `ms`. The work itself goes on, unobserved. */
export function within<T, L>(clock: Clock, ms: number, work: Promise<T>, late: L): Promise<T | L> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(ms, () => resolve(late));
    work.then(resolve, reject).finally(cancel);
  });
}
