import { base64 } from '../../kit/bytes.ts';
import type { Clock } from '../../kit/clock.ts';
import type { JsonObject } from '../../kit/json.ts';
import type { SessionSocket } from '../socket/session-socket.ts';
import type { EventBody } from '../socket/types.ts';
import { levelsOf } from '../streaming/pcm.ts';
import type { OutputAudio, Playback } from './core/state.ts';
import { type Cut, PlaybackLedger } from './playback-ledger.ts';

const BYTES_PER_SAMPLE = 2;

export interface PublisherDeps {
  socket: Pick<SessionSocket, 'publish' | 'publishAudio' | 'room' | 'cursors'>;
  clock: Pick<Clock, 'monotonic'>;
  /** Records an event that is not held back. */
  published?(event: EventBody): void;
  /** Further members of `svc.run.started`. */
  runStarted(): JsonObject;
  /** Stops or resumes reading the provider. */
  pace(isPaused: boolean): void;
}

type Held = { event: EventBody } | { audio: OutputAudio };

/** All events of a session for its client, sent at once, or once a response is known to be good. */
export class Publisher {
  readonly #deps: PublisherDeps;
  readonly #ledger = new PlaybackLedger();
  /** Events of responses that are held back, by response id. Their audio is bounded by the state machine. */
  readonly #held = new Map<string, Held[]>();
  #audioEventId = 0;
  #isPaused = false;

  constructor(deps: PublisherDeps) {
    this.#deps = deps;
  }

  /** Publishes an event, with `hold` once the response of that id is released. */
  emit(event: EventBody, hold?: string): void {
    this.#take({ event }, hold);
  }

  /** Like `emit`, for speech. */
  audio(audio: OutputAudio, hold?: string): void {
    this.#take({ audio }, hold);
  }

  release(hold: string): void {
    const events = this.#held.get(hold) ?? [];
    this.#held.delete(hold);
    for (const held of events) this.#publish(held);
  }

  discard(hold: string): void {
    this.#held.delete(hold);
  }

  /** Playback on the phone, as far as known. */
  get playback(): Playback {
    const played = this.#played;
    return { played, isAllPlayed: this.#ledger.isAllPlayed(played, this.#now) };
  }

  /** The phone is back, and plays what it missed. */
  resumed(): void {
    this.#ledger.resumed(this.#now, this.#played);
  }

  /** Positions at which the provider's history is to be cut. `isCertain`: the phone was playing. */
  cut(isCertain: boolean): Cut[] {
    return this.#ledger.cut(this.#played, this.#now, isCertain);
  }

  /** The provider's history begins again. */
  forgetItems(): void {
    this.#ledger.forgetItems();
  }

  get #played(): number {
    return this.#deps.socket.cursors.played;
  }

  get #now(): number {
    return this.#deps.clock.monotonic();
  }

  #take(held: Held, hold: string | undefined): void {
    if (hold === undefined) {
      this.#publish(held);
      return;
    }
    const events = this.#held.get(hold) ?? [];
    events.push(held);
    this.#held.set(hold, events);
  }

  #publish(held: Held): void {
    const { socket, runStarted, published } = this.#deps;
    if (!('audio' in held)) published?.(held.event);
    if ('audio' in held) this.#publishAudio(held.audio);
    else if (held.event.type === 'svc.run.started') socket.publish({ ...held.event, ...runStarted() });
    else socket.publish(held.event);
  }

  #publishAudio({ responseId, pcm, sampleRate, itemId, contentIndex, labels }: OutputAudio): void {
    const { peak, rms } = levelsOf(pcm);
    this.#deps.socket.publishAudio({
      type: 'voice.output_audio.delta',
      audio_base64: base64(pcm),
      byte_count: pcm.length,
      sample_rate: sampleRate,
      channels: 1,
      sample_width: BYTES_PER_SAMPLE,
      peak_level: peak,
      rms_level: rms,
      response_id: responseId,
      ...labels,
    });
    const duration = (pcm.length / BYTES_PER_SAMPLE / sampleRate) * 1000;
    this.#ledger.sent({ audioEventId: ++this.#audioEventId, duration, itemId, contentIndex, responseId }, this.#now);
    this.#pace();
  }

  /** A phone that reads slowly slows the provider down. */
  #pace(): void {
    const { socket, pace } = this.#deps;
    const room = socket.room();
    if (!room || this.#isPaused) return;
    this.#isPaused = true;
    pace(true);
    void room.then(() => {
      this.#isPaused = false;
      pace(false);
    });
  }
}
