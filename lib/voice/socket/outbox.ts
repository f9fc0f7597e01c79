import type { JsonObject } from '../../kit/json.ts';
import { utf8Length } from '../../kit/text.ts';
import { type Cursors, EventRing } from './ring.ts';
import type { Rules } from './rules.ts';
import type { EventBody } from './types.ts';

/** A replay: the frames' text, and whether needed events were evicted. */
export interface Replay {
  frames: string[];
  hasGap: boolean;
}

/** The events of a session: their ids, the client's position, and the events that it may still need. */
export class Outbox {
  readonly #rules: Rules;
  /** Monotonic milliseconds of the session's creation. */
  readonly #start: number;
  readonly #ring: EventRing;
  readonly cursors: Cursors = { event: 0, audio: 0, played: 0, input: 0 };
  #eventId = 0;
  #audioId = 0;

  constructor(rules: Rules, start: number) {
    this.#rules = rules;
    this.#start = start;
    this.#ring = new EventRing(rules.ring);
  }

  get buffered(): { events: number; bytes: number } {
    return { events: this.#ring.count, bytes: this.#ring.bytes };
  }

  /** The last ids that events have got; 0 before the first. */
  get last(): { event: number; audio: number } {
    return { event: this.#eventId, audio: this.#audioId };
  }

  /** True if the producer has to wait for acknowledgements. */
  get isFull(): boolean {
    return this.#rules.whenFull === 'wait' && this.#ring.isFull;
  }

  /** Gives an event its ids and its time. */
  number({ type, ...body }: EventBody, now: number, isAudio = false): JsonObject {
    const at_ms = Math.round(now - this.#start);
    if (!this.#rules.resumable) return { type, at_ms, ...body };
    this.#eventId++;
    if (!isAudio) return { type, event_id: this.#eventId, at_ms, ...body };
    this.#audioId++;
    return { type, event_id: this.#eventId, audio_event_id: this.#audioId, at_ms, ...body };
  }

  /** Stores the frame of the last numbered event for a resume. */
  retain(text: string, isAudio: boolean): void {
    if (!this.#rules.resumable) return;
    const event = {
      id: this.#eventId,
      audioId: isAudio ? this.#audioId : undefined,
      text,
      bytes: isAudio ? text.length : utf8Length(text),
    };
    if (this.#rules.whenFull === 'evict') this.#ring.addEvicting(event);
    else this.#ring.add(event);
  }

  /** Raises cursors, never beyond what was sent, and drops the events that they have passed. */
  raise({ event, audio, played, input }: Cursors): void {
    const { cursors } = this;
    cursors.event = Math.max(cursors.event, Math.min(event, this.#eventId));
    cursors.audio = Math.max(cursors.audio, Math.min(audio, this.#audioId));
    cursors.played = Math.max(cursors.played, Math.min(played, this.#audioId));
    cursors.input = Math.max(cursors.input, input);
    this.#ring.acknowledge(cursors);
  }

  replay(): Replay {
    const frames = this.#ring.list().map(({ text }) => `${text.slice(0, -1)},"replayed":true}`);
    return { frames, hasGap: this.#ring.hasGap(this.cursors) };
  }

  clear(): void {
    this.#ring.clear();
  }
}
