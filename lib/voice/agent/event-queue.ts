import type { ProviderEvent } from './provider/provider.ts';

/** Bytes of speech in one event: some seconds. Even, so that samples stay whole. */
const MAX_PIECE = 128 * 1024;

export interface EventQueueParts {
  /** As `SessionSocket.room`. */
  room(): Promise<void> | undefined;
  post(event: ProviderEvent): void;
}

/**
 * Events of a provider on their way to the state machine. Speech is cut into pieces, and everything waits while the
 * phone's socket is full: one long delta would otherwise exceed what may be unsent, and cost the phone its connection.
 * Bounded by the provider's messages, which are not read meanwhile.
 */
export class ProviderEventQueue {
  readonly #parts: EventQueueParts;
  readonly #queue: ProviderEvent[] = [];
  #isBusy = false;

  constructor(parts: EventQueueParts) {
    this.#parts = parts;
  }

  push(event: ProviderEvent): void {
    if (event.type !== 'audioDelta') this.#queue.push(event);
    else {
      for (let at = 0; at < event.pcm.length; at += MAX_PIECE)
        this.#queue.push({ ...event, pcm: event.pcm.subarray(at, at + MAX_PIECE) });
    }
    if (!this.#isBusy) this.#drain();
  }

  #drain(): void {
    this.#isBusy = true;
    for (let event = this.#queue.shift(); event; event = this.#queue.shift()) {
      this.#parts.post(event);
      const room = this.#queue.length > 0 && this.#parts.room();
      if (!room) continue;
      void room.then(() => this.#drain());
      return;
    }
    this.#isBusy = false;
  }
}
