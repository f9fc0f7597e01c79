import { RelayError } from '../errors.ts';

export type Semaphore = ReturnType<typeof createSemaphore>;

/** Bounds how much work runs at once, to `permits`. At most `maxWaiting` callers wait in line. */
export function createSemaphore(permits: number, maxWaiting: number) {
  let running = 0;
  const queue = new Set<() => void>();

  /** A released permit goes straight to the next in the queue, so that nobody overtakes it. */
  function release(): void {
    const [next] = queue;
    if (next) next();
    else running--;
  }

  function acquire(signal: AbortSignal): Promise<void> | undefined {
    signal.throwIfAborted();
    if (running < permits) {
      running++;
      return undefined;
    }
    if (queue.size >= maxWaiting) throw new RelayError('unavailable', 'too many calls are waiting');
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
    /**
     * Runs `work` in the order of calls. Rejects without running it if `signal` aborts first, or if too many are waiting
     * (`unavailable`).
     */
    async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
      await acquire(signal);
      try {
        signal.throwIfAborted();
        return await work();
      } finally {
        release();
      }
    },
    get running(): number {
      return running;
    },
    get waiting(): number {
      return queue.size;
    },
  };
}

/** Runs one piece of work at a time. */
export type Turns = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * Returns a function that runs work one after another, in the order of calls. At most `maxWaiting` calls wait in line.
 * @throws RelayError `unavailable` if too many are waiting, and any error of the work.
 */
export function createTurns(maxWaiting: number): Turns {
  const semaphore = createSemaphore(1, maxWaiting);
  // Each call has a separate signal, since Node warns of a signal with many listeners.
  return (work) => semaphore.run(new AbortController().signal, work);
}

export interface AdmissionLimits {
  /** Concurrent work of one owner. */
  perOwner: number;
  /** Concurrent work of all owners. */
  total: number;
  /** Error message for callers over the limit. */
  message: string;
  /** Seconds after which a refused caller may try again. */
  retryAfter: number;
}

/** Bounds work that holds memory or disk, per owner and in total, without a queue. */
export function createAdmission({ perOwner, total, message, retryAfter }: AdmissionLimits) {
  const running = new Map<string, number>();
  let all = 0;
  /** Runs `work` unless too much is running. @throws RelayError `rate-limited`, and any error of `work`. */
  return async <T>(owner: string, work: () => Promise<T>): Promise<T> => {
    const own = running.get(owner) ?? 0;
    if (own >= perOwner || all >= total) throw new RelayError('rate-limited', message, { retryAfter });
    running.set(owner, own + 1);
    all++;
    try {
      return await work();
    } finally {
      all--;
      const left = (running.get(owner) ?? 1) - 1;
      if (left > 0) running.set(owner, left);
      else running.delete(owner);
    }
  };
}

/** Maps `items` in order, running at most `limit` at once. Starts no further item after a failure. */
export async function mapLimit<T, R>(limit: number, items: T[], run: (item: T) => Promise<R>): Promise<R[]> {
  const results = new Array<R>(items.length);
  const queue = items.entries();
  let failed = false;
  const worker = async () => {
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
  await Promise.all(Array.from({ length: limit }, worker));
  return results;
}
