import { concatBytes } from '../../kit/bytes.ts';
import type { Change } from './credentials.ts';

/** Effects for the runtime, in this order. `S` stands for one of its sockets. */
export type Effect<S> =
  /** Send one message, `head` before `data`; its length counts as unsent until `sent` is called with it. */
  | { do: 'send'; socket: S; head?: Uint8Array; data: string | Uint8Array }
  /** Close with this code and an empty reason, after everything sent before. No later event of the socket counts. */
  | { do: 'close'; socket: S; code: number }
  /** Find out soon whether the other side is still connected. */
  | { do: 'probe'; socket: S }
  /** Stop reading from a socket, or resume. */
  | { do: 'pause' | 'resume'; socket: S }
  /** Store these changes in one transaction and then call `saved` with the same number. */
  | { do: 'save'; changes: Change[]; id: number }
  | { do: 'log'; level: 'debug' | 'info' | 'warn'; text: string };

/** The message of a `send` in one piece, for runtimes that send no other. */
export const wholeMessage = ({ head, data }: { head?: Uint8Array; data: string | Uint8Array }): string | Uint8Array =>
  head && typeof data !== 'string' ? concatBytes(head, data) : data;

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

  send(data: string | Uint8Array, head?: Uint8Array): void {
    if (!this.isOpen) return;
    this.unsent += data.length + (head?.length ?? 0);
    this.#effects.push({ do: 'send', socket: this.socket, head, data });
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
