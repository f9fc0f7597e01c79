/**
 * A queue for work that holds the thread: each `await turn()` gets a turn of the event loop of its own. Not on the
 * relay's clock, as it measures no time.
 */
export function createTurns(): () => Promise<void> {
  let last = Promise.resolve();
  return () => {
    last = last.then(() => new Promise((resolve) => setTimeout(resolve, 0)));
    return last;
  };
}
