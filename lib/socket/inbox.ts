import { nextTurn } from '../kit/clock.ts';
import { releaseFrame, type TextFrame } from './envelope-head.ts';
import type { Transport } from './transport.ts';

/** Messages of one socket that are handled per turn of the event loop: 64 KiB may contain 9,000. */
const MAX_IN_TURN = 1024;

/**
 * Incoming messages of a client. The socket is not read while there is a reason to pause. Messages that were already read
 * are still handled, or held as well.
 */
export class Inbox {
  readonly #transport: Transport;
  readonly #handle: (frame: TextFrame) => void;
  #pauses = 0;
  #canPause = false;
  #holds = 0;
  #held: TextFrame[] = [];
  #inTurn = 0;
  #ended = false;

  /** `handle` must not throw. */
  constructor(transport: Transport, handle: (frame: TextFrame) => void) {
    this.#transport = transport;
    this.#handle = handle;
  }

  /** True if reading is paused, in which case silence proves nothing about the client. */
  get isPaused(): boolean {
    return this.#pauses > 0;
  }

  receive(frame: TextFrame): void {
    if (this.#holds > 0) {
      this.#held.push(frame);
      return;
    }
    this.#handle(frame);
    if (++this.#inTurn < MAX_IN_TURN) return;
    this.#inTurn = 0;
    this.hold();
    void nextTurn().then(() => this.release());
  }

  /** Adds a reason not to read. Returns false if the runtime cannot pause. */
  pause(): boolean {
    if (this.#pauses++ === 0) this.#canPause = this.#transport.pause();
    return this.#canPause;
  }

  /** Removes one reason. */
  resume(): void {
    if (--this.#pauses === 0 && !this.#ended) this.#transport.resume();
  }

  /** Adds a reason neither to read nor to handle messages that were read. */
  hold(): void {
    this.#holds++;
    this.pause();
  }

  /** Removes one such reason, and handles the held messages. */
  release(): void {
    this.#holds--;
    const held = this.#held;
    let next = 0;
    while (this.#holds === 0 && next < held.length) this.receive(held[next++] as TextFrame);
    held.splice(0, next);
    this.resume();
  }

  /** The socket is closing. Keeps reading, for the client's half of the closing handshake. */
  end(): void {
    this.#ended = true;
    for (const frame of this.#held.splice(0)) releaseFrame(frame);
    if (this.#pauses > 0) this.#transport.resume();
  }
}
