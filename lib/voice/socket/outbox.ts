import type { JsonObject } from '../../kit/json.ts';
import { utf8Length } from '../../kit/text.ts';
import type { Rules } from './rules.ts';
import type { EventBody } from './types.ts';

/** The positions that a client has acknowledged, which never decrease. */
export interface Cursors {
  event: number;
  audio: number;
  played: number;
  input: number;
}

/** An event that was sent or is still to be sent, as the JSON text of its frame. */
interface Frame {
  /** `event_id`. */
  id: number;
  /** `audio_event_id`, 0 without audio. */
  audioId: number;
  text: string;
  bytes: number;
}

/** A replay: the frames' text, and whether needed events were evicted. */
export interface Replay {
  frames: string[];
  hasGap: boolean;
}

/** The frames of one kind. They arrive in order, and leave from the front. */
type Queue = Map<number, Frame>;

/**
 * The events of a session: their ids, the client's position, and the events that the client may still need (contract 05
 * §12): audio by `audio_event_id` and the rest by `event_id`. Events that a cursor has passed are removed at once, since
 * cursors never decrease.
 */
export class Outbox {
  readonly #rules: Rules;
  /** Monotonic milliseconds of the session's creation. */
  readonly #start: number;
  readonly cursors: Cursors = { event: 0, audio: 0, played: 0, input: 0 };
  /** The last ids that events have got; 0 before the first. */
  readonly last = { event: 0, audio: 0 };
  readonly buffered = { events: 0, bytes: 0 };
  readonly #audio: Queue = new Map();
  readonly #other: Queue = new Map();
  /** Highest ids that were evicted although no cursor had passed them. */
  #evictedAudio = 0;
  #evictedOther = 0;

  constructor(rules: Rules, start: number) {
    this.#rules = rules;
    this.#start = start;
  }

  /** True if the producer has to wait for acknowledgements. */
  get isFull(): boolean {
    const { events, bytes, reserve } = this.#rules.ring;
    const isOver = this.buffered.events >= events - reserve.events || this.buffered.bytes >= bytes - reserve.bytes;
    return this.#rules.whenFull === 'wait' && isOver;
  }

  /** Gives an event its ids and its time. */
  number({ type, ...body }: EventBody, now: number, isAudio = false): JsonObject {
    const at_ms = Math.round(now - this.#start);
    if (!this.#rules.resumable) return { type, at_ms, ...body };
    const event_id = ++this.last.event;
    if (!isAudio) return { type, event_id, at_ms, ...body };
    return { type, event_id, audio_event_id: ++this.last.audio, at_ms, ...body };
  }

  /** Stores the frame of the last numbered event for a resume, and evicts others if there are too many. */
  retain(text: string, isAudio: boolean): void {
    if (!this.#rules.resumable) return;
    const { event: id, audio } = this.last;
    const bytes = isAudio ? text.length : utf8Length(text);
    (isAudio ? this.#audio : this.#other).set(id, { id, audioId: isAudio ? audio : 0, text, bytes });
    this.buffered.events++;
    this.buffered.bytes += bytes;
    const { events: maxEvents, bytes: maxBytes } = this.#rules.ring;
    while (this.buffered.events > maxEvents || this.buffered.bytes > maxBytes) this.#evict();
  }

  /** Raises cursors, never beyond what was sent, and drops the events that they have passed. */
  raise({ event, audio, played, input }: Cursors): void {
    const { cursors, last } = this;
    cursors.event = Math.max(cursors.event, Math.min(event, last.event));
    cursors.audio = Math.max(cursors.audio, Math.min(audio, last.audio));
    cursors.played = Math.max(cursors.played, Math.min(played, last.audio));
    cursors.input = Math.max(cursors.input, input);
    this.#removeWhile(this.#audio, ({ audioId }) => audioId <= this.#passedAudio);
    this.#removeWhile(this.#other, ({ id }) => id <= cursors.event);
  }

  /** Everything still needed, in order. */
  replay(): Replay {
    const needed = [...this.#audio.values(), ...this.#other.values()].sort((a, b) => a.id - b.id);
    return {
      frames: needed.map(({ text }) => `${text.slice(0, -1)},"replayed":true}`),
      hasGap: this.#evictedAudio > this.#passedAudio || this.#evictedOther > this.cursors.event,
    };
  }

  clear(): void {
    for (const queue of [this.#audio, this.#other]) this.#removeWhile(queue, () => true);
  }

  get #passedAudio(): number {
    return Math.max(this.cursors.audio, this.cursors.played);
  }

  /** Evicts the oldest event. While the producer waits for acknowledgements, audio goes last. */
  #evict(): void {
    const [audio] = this.#audio.values();
    const [other] = this.#other.values();
    if (other && (!audio || this.#rules.whenFull === 'wait' || other.id < audio.id)) {
      this.#evictedOther = other.id;
      this.#remove(this.#other, other);
    } else if (audio) {
      this.#evictedAudio = audio.audioId;
      this.#remove(this.#audio, audio);
    }
  }

  #removeWhile(queue: Queue, isPassed: (frame: Frame) => boolean): void {
    for (const frame of queue.values()) {
      if (!isPassed(frame)) return;
      this.#remove(queue, frame);
    }
  }

  #remove(queue: Queue, { id, bytes }: Frame): void {
    queue.delete(id);
    this.buffered.events--;
    this.buffered.bytes -= bytes;
  }
}
