export interface WatermarkLimits {
  high: number;
  low: number;
  pause(): void;
  resume(): void;
}

/** Pauses a producer above the high-water mark and resumes it below the low one. */
export class Watermark {
  readonly #limits: WatermarkLimits;
  #paused = false;

  constructor(limits: WatermarkLimits) {
    this.#limits = limits;
  }

  update(unsent: number): void {
    if (!this.#paused && unsent > this.#limits.high) {
      this.#paused = true;
      this.#limits.pause();
    } else if (this.#paused && unsent < this.#limits.low) {
      this.#paused = false;
      this.#limits.resume();
    }
  }
}
