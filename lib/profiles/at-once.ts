/** Results in the order of `items`, with at most `most` of them under way. Stops beginning new ones after a failure. */
export async function mapAtMost<T, R>(most: number, items: T[], run: (item: T) => Promise<R>): Promise<R[]> {
  const results = new Array<R>(items.length);
  const queue = items.entries();
  let failed = false;
  const lane = async () => {
    for (const [index, item] of queue) {
      try {
        results[index] = await run(item);
      } catch (error) {
        failed = true;
        throw error;
      }
      if (failed) return;
    }
  };
  await Promise.all(Array.from({ length: most }, lane));
  return results;
}

/**
 * A queue for work that holds the thread: after `await turn()` the caller has a turn of the event loop, and nobody else
 * of the queue has the same one. Not the relay's clock: this is no measure of time.
 */
export function createTurns(): () => Promise<void> {
  let last = Promise.resolve();
  return () => {
    last = last.then(() => new Promise((resolve) => setTimeout(resolve, 0)));
    return last;
  };
}
