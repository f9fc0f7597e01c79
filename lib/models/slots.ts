import { RelayError } from '../errors.ts';

/** Work that may be under way only so many times at once. */
export interface Slots {
  /**
   * Runs `work` when it is its turn, first come first served. Rejects without running it when `signal` is aborted
   * before that, or when too many wait already (`unavailable`).
   */
  run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T>;
  readonly running: number;
  readonly waiting: number;
}

export function createSlots(most: number, mostWaiting: number): Slots {
  let running = 0;
  const queue = new Set<() => void>();

  function release(): void {
    const [next] = queue;
    if (next) next();
    else running--;
  }

  /** A slot that is given back passes to the next in line, so that nobody overtakes it. */
  function enter(signal: AbortSignal): Promise<void> | undefined {
    signal.throwIfAborted();
    if (running < most) {
      running++;
      return undefined;
    }
    if (queue.size >= mostWaiting) throw new RelayError('unavailable', 'too many calls are waiting');
    return new Promise((resolve, reject) => {
      const leave = () => {
        queue.delete(turn);
        reject(signal.reason);
      };
      const turn = () => {
        queue.delete(turn);
        signal.removeEventListener('abort', leave);
        resolve();
      };
      queue.add(turn);
      signal.addEventListener('abort', leave, { once: true });
    });
  }

  return {
    async run(signal, work) {
      await enter(signal);
      try {
        signal.throwIfAborted();
        return await work();
      } finally {
        release();
      }
    },
    get running() {
      return running;
    },
    get waiting() {
      return queue.size;
    },
  };
}
