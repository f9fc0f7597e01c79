import { base64 } from '../../kit/bytes.ts';
import type { Clock } from '../../kit/clock.ts';
import type { JsonObject } from '../../kit/json.ts';
import type { SessionSocket } from '../socket/session-socket.ts';
import type { EventBody } from '../socket/types.ts';
import { levelsOf } from '../streaming/pcm.ts';
import type { OutputAudio, Playback } from './core/state.ts';
import { createPacedQueue, type PacedQueue } from './paced-queue.ts';
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
  readonly #outgoing: PacedQueue<{ event: EventBody; isAudio: boolean }>;
  readonly #ledger = new PlaybackLedger();
  /** Events of responses that are held back, by response id. Their audio is bounded by the state machine. */
  readonly #held = new Map<string, Held[]>();
  #audioEventId = 0;
  #isPaused = false;

  constructor(deps: PublisherDeps) {
    this.#deps = deps;
    const { socket } = deps;
    this.#outgoing = createPacedQueue(
      () => socket.room(),
      ({ event, isAudio }) => {
        if (!isAudio) socket.publish(event);
        else {
          socket.publishAudio(event);
          this.#pace();
        }
      },
    );
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
    this.#publish(events);
  }

  discard(hold: string): void {
    this.#held.delete(hold);
  }

  /** Sends everything that waits for the phone to read. */
  flush(): void {
    this.#outgoing.flush();
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

  /** True while the phone reads too slowly for the provider. */
  get isPaused(): boolean {
    return this.#isPaused;
  }

  get #played(): number {
    return this.#deps.socket.cursors.played;
  }

  get #now(): number {
    return this.#deps.clock.monotonic();
  }

  #take(held: Held, hold: string | undefined): void {
    if (hold === undefined) {
      this.#publish([held]);
      return;
    }
    const events = this.#held.get(hold) ?? [];
    events.push(held);
    this.#held.set(hold, events);
  }

  #publish(held: readonly Held[]): void {
    this.#outgoing.push(
      held.map((one) =>
        'audio' in one
          ? { event: this.#audioEvent(one.audio), isAudio: true }
          : { event: this.#event(one.event), isAudio: false },
      ),
    );
  }

  #event(event: EventBody): EventBody {
    this.#deps.published?.(event);
    return event.type === 'svc.run.started' ? { ...event, ...this.#deps.runStarted() } : event;
  }

  /** The event for speech. Playback counts it from now on. */
  #audioEvent({ responseId, pcm, sampleRate, itemId, contentIndex, labels }: OutputAudio): EventBody {
    const duration = (pcm.length / BYTES_PER_SAMPLE / sampleRate) * 1000;
    this.#ledger.sent({ audioEventId: ++this.#audioEventId, duration, itemId, contentIndex, responseId }, this.#now);
    const { peak, rms } = levelsOf(pcm);
    return {
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
    };
  }

  /** A phone that reads slowly slows the provider down. */
  #pace(): void {
    if (this.#isPaused) return;
    const { socket, pace } = this.#deps;
    const room = socket.room();
    if (!room) return;
    this.#isPaused = true;
    pace(true);
    void room.then(() => {
      this.#isPaused = false;
      pace(false);
    });
  }
}
