const HIGH_WATER = 256;
const LOW_WATER = 64;
/** Characters or bytes of waiting jobs. */
const MAX_SIZE = 64 * 1024 * 1024;

type Job = () => void | Promise<void>;

/** Flow control of a serial queue. */
export interface QueueSignals {
  /** More than 256 jobs wait, or jobs of more than 64 MiB. */
  backedUp(): void;
  /** Fewer than 64 jobs are waiting again, of no more than 64 MiB. */
  drained(): void;
}

/** Runs jobs one at a time, in order; synchronous ones at once (contract 02 §1.6). Jobs must not reject. */
export class SerialQueue {
  readonly #waiting: { job: Job; size: number }[] = [];
  readonly #signals: QueueSignals;
  #size = 0;
  #busy = false;
  #backedUp = false;

  constructor(signals: QueueSignals) {
    this.#signals = signals;
  }

  /** Adds a job, which holds a message of `size` characters or bytes while it waits. */
  push(job: Job, size = 0): void {
    if (!this.#busy) {
      this.#run(job);
      return;
    }
    this.#waiting.push({ job, size });
    this.#size += size;
    if (!this.#backedUp && (this.#waiting.length > HIGH_WATER || this.#size > MAX_SIZE)) {
      this.#backedUp = true;
      this.#signals.backedUp();
    }
  }

  #run(job: Job): void {
    const pending = job();
    if (!pending) return;
    this.#busy = true;
    pending.then(() => this.#next());
  }

  #next(): void {
    this.#busy = false;
    while (!this.#busy) {
      const next = this.#waiting.shift();
      if (!next) break;
      this.#size -= next.size;
      this.#run(next.job);
    }
    if (this.#backedUp && this.#waiting.length < LOW_WATER && this.#size <= MAX_SIZE) {
      this.#backedUp = false;
      this.#signals.drained();
    }
  }
}
