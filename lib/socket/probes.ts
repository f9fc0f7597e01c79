import type { Cancel, Clock } from '../kit/clock.ts';

/** Milliseconds that a client may stay silent after a probe (contract 04 §5.4a). */
const ANSWER_WITHIN = 10_000;

/** A socket whose client was probed. */
export interface Probed {
  /** There was no answer in time. Returns true to wait as long again. */
  missedProbe(): boolean;
}

/** The sockets with an unanswered probe, with one timer for all. */
export class Probes {
  readonly #clock: Clock;
  /** Time of each check, monotonic ms. Insertion order suffices, because all wait equally long. */
  readonly #due = new Map<Probed, number>();
  #cancel: Cancel | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(socket: Probed): void {
    this.#due.delete(socket);
    this.#due.set(socket, this.#clock.monotonic() + ANSWER_WITHIN);
    this.#arm();
  }

  remove(socket: Probed): void {
    if (!this.#due.delete(socket) || this.#due.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #arm(): void {
    const first: number | undefined = this.#due.values().next().value;
    if (this.#cancel || first === undefined) return;
    this.#cancel = this.#clock.after(Math.max(0, first - this.#clock.monotonic()), () => this.#check());
  }

  #check(): void {
    this.#cancel = undefined;
    const now = this.#clock.monotonic();
    for (const [socket, due] of [...this.#due]) {
      if (due > now) break;
      this.#due.delete(socket);
      if (socket.missedProbe()) this.#due.set(socket, now + ANSWER_WITHIN);
    }
    this.#arm();
  }
}
