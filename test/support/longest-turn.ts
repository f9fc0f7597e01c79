import { readFileSync } from 'node:fs';

/** Milliseconds that this thread has run; wall time where the kernel does not say. */
function ran(): number {
  try {
    return Number(readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[0]) / 1e6;
  } catch {
    return performance.now();
  }
}

/**
 * Runs `task`, and returns its result with the most milliseconds for which the event loop of this thread was busy
 * without a break. Counts processor time: other work on the machine stops the loop too.
 */
export async function longestTurn<T>(task: () => Promise<T>): Promise<{ result: T; longest: number }> {
  let longest = 0;
  let last = ran();
  const sample = () => {
    const now = ran();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(sample, 1);
  try {
    const result = await task();
    sample();
    return { result, longest };
  } finally {
    clearInterval(timer);
  }
}
