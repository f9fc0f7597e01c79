import { RelayError } from '../../lib/errors.ts';
import { asObject } from '../../lib/kit/json.ts';
import { CommandError, printable, printableText } from '../output.ts';
import type { VoiceRelay } from './relay.ts';
import { followSession, type Send, type SessionClient, type VoiceEvent } from './socket.ts';

/** Bytes. The relay makes no longer renders. */
const MAX_AUDIO = 64 * 1024 * 1024;
/** A second loss of the socket is an error. It has to be open again in ten seconds; the relay waits for 30. */
const ONCE = { resumes: 1, comeBack: 10_000 };
const SEE_DOCTOR = 'See which providers and keys the relay has: svc voice doctor';

/** Text to speak, and the voice for it. The relay's settings fill in absent members. */
export interface SpeechRequest {
  text: string;
  profile?: string;
  provider?: string;
  model?: string;
  voice?: string;
  sample_rate?: number;
  language?: string;
  /** Relative; 1 is the normal one. */
  speed?: number;
}

/** A speed of `--speed`. @throws RelayError for one that no provider accepts. */
export function asSpeed(text: string): number {
  const speed = Number(text);
  if (/^\d(?:\.\d{1,3})?$/.test(text) && speed >= 0.25 && speed <= 4) return speed;
  throw new RelayError('invalid', 'must be a number from 0.25 to 4');
}

/** A part of the speech, 16-bit little-endian mono. */
export interface SpeechPart {
  pcm: Buffer;
  /** Hertz. */
  sampleRate: number;
}

/** Result of a render, with its timing. */
export interface Speech {
  provider: string;
  model: string;
  voice: string;
  sampleRate: number;
  /** Bytes of samples. */
  bytes: number;
  /** Milliseconds from the request for a session to the first audio. */
  firstAudioMs: number;
  /** Milliseconds to the last event. */
  totalMs: number;
  /** True if the connection was lost and resumed. */
  resumed: boolean;
  eventLog: string;
}

/**
 * Has the relay speak a text through `/voice/output`, like a phone: a session, its socket, and one resume if the socket is
 * lost (contract 05 §12, §16). `onPart` gets every sample once, in order.
 * @throws CommandError with the relay's reason.
 */
export async function speak(
  relay: VoiceRelay,
  request: SpeechRequest,
  onPart: (part: SpeechPart) => void,
): Promise<Speech> {
  const began = performance.now();
  const { text, speed, ...voice } = request;
  const session = await relay.call({ method: 'POST', path: '/voice/output/session', body: voice });
  const { websocket_path: path, resume_token: resumeToken } = session;
  if (typeof path !== 'string' || !path.startsWith('/voice/output/') || typeof resumeToken !== 'string') {
    throw new CommandError(`the relay on ${relay.name} answers like another version`, 'Restart it, and try again.');
  }
  return followSession(relay, path, new Listener({ text, speed, resumeToken, began, onPart }), ONCE);
}

interface ListenerOptions {
  text: string;
  speed: number | undefined;
  resumeToken: string;
  /** Time of the request for the session, in ms of `performance`. */
  began: number;
  onPart(part: SpeechPart): void;
}

/** One session of voice output, over one socket or two. */
class Listener implements SessionClient<Speech> {
  readonly #options: ListenerOptions;
  #lastEvent = 0;
  #lastAudio = 0;
  #bytes = 0;
  #sampleRate = 0;
  #firstAudioMs = 0;
  #resumed = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  start(): object[] {
    const { text, speed } = this.#options;
    const options = speed === undefined ? {} : { provider_options: { speed } };
    return [{ type: 'session.start' }, { type: 'response.create', text, ...options }];
  }

  resume(): object[] {
    return [
      {
        type: 'session.resume',
        resume_token: this.#options.resumeToken,
        last_event_id: this.#lastEvent,
        last_audio_event_id: this.#lastAudio,
        last_played_audio_event_id: 0,
      },
    ];
  }

  lost(): void {
    this.#resumed = true;
  }

  /** Handles one event: audio goes to the caller, and everything is acknowledged. */
  onEvent(event: VoiceEvent, send: Send): { outcome: Speech } | undefined {
    const { type, event_id: id, audio_event_id: audioId } = event;
    if (type === 'voice.session.resume_failed') {
      throw new CommandError('the relay did not resume the session after the connection was lost', 'Run it again.');
    }
    if (type === 'voice.error') throw new CommandError(printable(String(event.message)), SEE_DOCTOR);
    if (type === 'voice.audio.delta') this.#audio(event, audioId);
    if (/^voice\.(?:session|replay)\./.test(type) || typeof id !== 'number') return undefined;
    this.#lastEvent = Math.max(this.#lastEvent, id);
    send({ type: 'client.ack', event_id: this.#lastEvent, audio_event_id: this.#lastAudio });
    return type === 'voice.response.done' ? { outcome: this.#outcome(event) } : undefined;
  }

  #audio({ audio_base64: text, sample_rate: rate }: Record<string, unknown>, id: unknown): void {
    if (id !== this.#lastAudio + 1) {
      throw new CommandError(`a part of the speech is missing: ${id} came after ${this.#lastAudio}`, 'Run it again.');
    }
    const pcm = Buffer.from(String(text), 'base64');
    if (this.#lastAudio === 0) {
      this.#firstAudioMs = performance.now() - this.#options.began;
      this.#sampleRate = Number(rate);
    }
    this.#lastAudio = id;
    this.#bytes += pcm.length;
    if (this.#bytes > MAX_AUDIO) throw new CommandError('the speech is longer than 64 MiB', 'Use a shorter text.');
    this.#options.onPart({ pcm, sampleRate: this.#sampleRate });
  }

  #outcome(event: Record<string, unknown>): Speech {
    const { provider, model, voice, event_log_path: eventLog } = asObject(event) ?? {};
    return {
      provider: printableText(provider),
      model: printableText(model),
      voice: printableText(voice),
      sampleRate: this.#sampleRate,
      bytes: this.#bytes,
      firstAudioMs: Math.round(this.#firstAudioMs),
      totalMs: Math.round(performance.now() - this.#options.began),
      resumed: this.#resumed,
      eventLog: printableText(eventLog),
    };
  }
}
