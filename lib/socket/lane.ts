const CROWDED = 256;
const RELIEVED = 64;

type Job = () => void | Promise<void>;

/**
 * Runs jobs strictly one after another, those that need no waiting at once. Tells when more than 256 wait, and when
 * fewer than 64 do again (contract 02 §1.6). Jobs must not reject.
 */
export class Lane {
  readonly #waiting: Job[] = [];
  readonly #signals: { crowded(): void; relieved(): void };
  #busy = false;
  #crowded = false;

  constructor(signals: { crowded(): void; relieved(): void }) {
    this.#signals = signals;
  }

  get isCrowded(): boolean {
    return this.#crowded;
  }

  push(job: Job): void {
    if (!this.#busy) {
      this.#run(job);
      return;
    }
    this.#waiting.push(job);
    if (this.#waiting.length > CROWDED && !this.#crowded) {
      this.#crowded = true;
      this.#signals.crowded();
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
    if (this.#crowded && this.#waiting.length < RELIEVED) {
      this.#crowded = false;
      this.#signals.relieved();
    }
  }
}
