/** One event that was sent or is still to be sent, as the JSON text of its frame. */
export interface RingEvent {
  /** `event_id`. */
  id: number;
  /** `audio_event_id`, for audio only. */
  audioId?: number;
  text: string;
  bytes: number;
}

export interface RingLimits {
  events: number;
  /** Bytes of the frames' text. */
  bytes: number;
  /** Left free by the producer for events of other origin. */
  reserve: { events: number; bytes: number };
}

/** The positions that a client has acknowledged, which never decrease. */
export interface Cursors {
  event: number;
  audio: number;
  played: number;
  input: number;
}

/** A queue in event order that drops from its front. */
class Fifo {
  readonly #items: (RingEvent | undefined)[] = [];
  #head = 0;

  get first(): RingEvent | undefined {
    return this.#items[this.#head];
  }

  push(event: RingEvent): void {
    this.#items.push(event);
  }

  shift(): RingEvent | undefined {
    const event = this.#items[this.#head];
    if (!event) return undefined;
    this.#items[this.#head++] = undefined;
    if (this.#head > 64 && this.#head * 2 > this.#items.length) {
      this.#items.splice(0, this.#head);
      this.#head = 0;
    }
    return event;
  }

  list(): RingEvent[] {
    return this.#items.slice(this.#head) as RingEvent[];
  }
}

/**
 * The events that a client may still need (contract 05 §12): those beyond its cursors, audio by `audio_event_id` and the
 * rest by `event_id`. Events that a cursor has passed are removed at once, since cursors never decrease.
 */
export class EventRing {
  readonly #limits: RingLimits;
  readonly #audio = new Fifo();
  readonly #other = new Fifo();
  /** Highest ids that were evicted although no cursor had passed them. */
  #evictedAudio = 0;
  #evictedOther = 0;
  count = 0;
  bytes = 0;

  constructor(limits: RingLimits) {
    this.#limits = limits;
  }

  /** True if the producer has to wait for acknowledgements. */
  get isFull(): boolean {
    const { events, bytes, reserve } = this.#limits;
    return this.count >= events - reserve.events || this.bytes >= bytes - reserve.bytes;
  }

  /** Adds the newest event. Over the limits, evicts the oldest event that is not audio, else the oldest audio. */
  add(event: RingEvent): void {
    this.#push(event);
    while (this.#isOver()) this.#evict(this.#other.first ?? this.#audio.first);
  }

  /** Adds the newest event. Over the limits, evicts the oldest events of any kind. */
  addEvicting(event: RingEvent): void {
    this.#push(event);
    while (this.#isOver()) this.#evict(this.#oldest());
  }

  /** Drops the events that these cursors have passed. */
  acknowledge({ event, audio, played }: Cursors): void {
    const highest = Math.max(audio, played);
    for (let first = this.#audio.first; first?.audioId !== undefined && first.audioId <= highest; ) {
      this.#remove(this.#audio);
      first = this.#audio.first;
    }
    for (let first = this.#other.first; first && first.id <= event; first = this.#other.first)
      this.#remove(this.#other);
  }

  /** Everything still needed, in order. */
  list(): RingEvent[] {
    return [...this.#audio.list(), ...this.#other.list()].sort((a, b) => a.id - b.id);
  }

  /** True if events beyond these cursors were evicted. */
  hasGap({ event, audio, played }: Cursors): boolean {
    return this.#evictedAudio > Math.max(audio, played) || this.#evictedOther > event;
  }

  clear(): void {
    while (this.#audio.first) this.#remove(this.#audio);
    while (this.#other.first) this.#remove(this.#other);
  }

  #push(event: RingEvent): void {
    (event.audioId === undefined ? this.#other : this.#audio).push(event);
    this.count++;
    this.bytes += event.bytes;
  }

  #isOver(): boolean {
    return this.count > this.#limits.events || this.bytes > this.#limits.bytes;
  }

  #oldest(): RingEvent | undefined {
    const [audio, other] = [this.#audio.first, this.#other.first];
    return audio && other ? (audio.id < other.id ? audio : other) : (audio ?? other);
  }

  #evict(event: RingEvent | undefined): void {
    if (!event) return;
    if (event.audioId === undefined) {
      this.#evictedOther = event.id;
      this.#remove(this.#other);
    } else {
      this.#evictedAudio = event.audioId;
      this.#remove(this.#audio);
    }
  }

  #remove(queue: Fifo): void {
    const event = queue.shift();
    if (!event) return;
    this.count--;
    this.bytes -= event.bytes;
  }
}
