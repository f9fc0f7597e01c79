import type { Change } from './credentials.ts';

/** Effects for the runtime, in this order. `S` stands for one of its sockets. */
export type Effect<S> =
  /** Send one message; its `length` counts as unsent until `sent` is called with it. */
  | { do: 'send'; socket: S; data: string | Uint8Array }
  /** Close with this code and an empty reason, after everything sent before. No later event of the socket counts. */
  | { do: 'close'; socket: S; code: number }
  /** Find out soon whether the other side is still connected. */
  | { do: 'probe'; socket: S }
  /** Stop reading from a socket, or resume. */
  | { do: 'pause' | 'resume'; socket: S }
  /** Store these changes in one transaction and then call `saved` with the same number. */
  | { do: 'save'; changes: Change[]; id: number }
  | { do: 'log'; level: 'debug' | 'info' | 'warn'; text: string };

/** One socket as the broker sees it: unsent bytes, and whether it is read. */
export class Link<S> {
  readonly socket: S;
  readonly #effects: Effect<S>[];
  unsent = 0;
  isOpen = true;
  isPaused = false;

  /** @param effects where the effects go */
  constructor(socket: S, effects: Effect<S>[]) {
    this.socket = socket;
    this.#effects = effects;
  }

  send(data: string | Uint8Array): void {
    if (!this.isOpen) return;
    this.unsent += data.length;
    this.#effects.push({ do: 'send', socket: this.socket, data });
  }

  close(code: number): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.#effects.push({ do: 'close', socket: this.socket, code });
  }

  probe(): void {
    if (this.isOpen) this.#effects.push({ do: 'probe', socket: this.socket });
  }

  setPaused(paused: boolean): void {
    if (!this.isOpen || paused === this.isPaused) return;
    this.isPaused = paused;
    this.#effects.push({ do: paused ? 'pause' : 'resume', socket: this.socket });
  }
}
