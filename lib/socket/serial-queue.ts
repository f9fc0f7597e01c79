const HIGH_WATER = 256;
const LOW_WATER = 64;

type Job = () => void | Promise<void>;

/** Flow control of a serial queue. */
export interface QueueSignals {
  /** More than 256 jobs wait. */
  backedUp(): void;
  /** Fewer than 64 jobs wait again. */
  drained(): void;
}

/** Runs jobs one at a time, in order; synchronous ones at once (contract 02 §1.6). Jobs must not reject. */
export class SerialQueue {
  readonly #waiting: Job[] = [];
  readonly #signals: QueueSignals;
  #busy = false;
  #backedUp = false;

  constructor(signals: QueueSignals) {
    this.#signals = signals;
  }

  get isBackedUp(): boolean {
    return this.#backedUp;
  }

  push(job: Job): void {
    if (!this.#busy) {
      this.#run(job);
      return;
    }
    this.#waiting.push(job);
    if (this.#waiting.length > HIGH_WATER && !this.#backedUp) {
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
    while (!this.#busy && this.#waiting.length > 0) {
      this.#run(this.#waiting.shift() as Job);
    }
    if (this.#backedUp && this.#waiting.length < LOW_WATER) {
      this.#backedUp = false;
      this.#signals.drained();
    }
  }
}
