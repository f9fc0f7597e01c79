import type { Clock } from '../kit/clock.ts';

/** The outcome of `work`, or `late` when it takes longer than `limit` milliseconds. What it does later goes unheard. */
export async function inTime<T, L>(clock: Clock, limit: number, work: Promise<T>, late: L): Promise<T | L> {
  let cancel = () => {};
  const over = new Promise<L>((resolve) => {
    cancel = clock.after(limit, () => resolve(late));
  });
  work.catch(() => {});
  try {
    return await Promise.race([work, over]);
  } finally {
    cancel();
  }
}
