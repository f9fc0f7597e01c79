import type { ProviderEvent } from './provider/provider.ts';

/** Maximum bytes of speech in one event: some seconds. Even, so that samples stay whole. */
const MAX_PIECE = 128 * 1024;

export interface EventQueueDeps {
  /** As `SessionSocket.room`. */
  room(): Promise<void> | undefined;
  post(event: ProviderEvent): void;
}

/**
 * Events of a provider on their way to the state machine. Speech is cut into pieces, and everything waits while the phone's
 * socket is full, because one long delta could exceed the limit of unsent bytes and close the phone's connection. Bounded,
 * because the provider is not read meanwhile.
 */
export class ProviderEventQueue {
  readonly #deps: EventQueueDeps;
  readonly #queue: ProviderEvent[] = [];
  #isBusy = false;

  constructor(deps: EventQueueDeps) {
    this.#deps = deps;
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
      this.#deps.post(event);
      const room = this.#queue.length > 0 && this.#deps.room();
      if (!room) continue;
      void room.then(() => this.#drain());
      return;
    }
    this.#isBusy = false;
  }
}
