/** Maximum items that wait. Over it they are passed on at once, since a phone may send much and read nothing. */
const MAX_WAITING = 64 * 1024;

export interface PacedQueue<T> {
  push(items: readonly T[]): void;
  /** Passes on everything that waits. */
  flush(): void;
}

/**
 * Passes items on in order, and waits before the next one while the phone's socket is full (`room` as `SessionSocket.room`):
 * many at once could exceed the limit of unsent bytes and close the phone's connection. A single item never waits.
 */
export function createPacedQueue<T>(room: () => Promise<void> | undefined, pass: (item: T) => void): PacedQueue<T> {
  const queue: T[] = [];
  let isBusy = false;

  function flush(): void {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) pass(item);
  }

  function drain(): void {
    isBusy = true;
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      pass(item);
      const wait = queue.length > 0 && room();
      if (!wait) continue;
      void wait.then(drain);
      return;
    }
    isBusy = false;
  }

  return {
    push(items) {
      for (const item of items) queue.push(item);
      if (!isBusy) drain();
      else if (queue.length > MAX_WAITING) flush();
    },
    flush,
  };
}
