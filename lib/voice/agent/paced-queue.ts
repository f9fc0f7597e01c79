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
  let queue: T[] = [];
  /** Index of the next item. `shift` would move all others: 2.8 s in all for 65,536 (2026-11). */
  let head = 0;
  let isBusy = false;

  function take(): T | undefined {
    const item = queue[head++];
    if (head > queue.length / 2) {
      queue = queue.slice(head);
      head = 0;
    }
    return item;
  }

  function flush(): void {
    for (let item = take(); item !== undefined; item = take()) pass(item);
  }

  function drain(): void {
    isBusy = true;
    for (let item = take(); item !== undefined; item = take()) {
      pass(item);
      const wait = queue.length > head && room();
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
      else if (queue.length - head > MAX_WAITING) flush();
    },
    flush,
  };
}
