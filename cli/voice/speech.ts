import { WebSocket } from 'ws';
import { asObject, parseObject } from '../../lib/kit/json.ts';
import { keepAlive } from '../keep-alive.ts';
import { CommandError, printable } from '../output.ts';
import { nextAfter, throwIfStopped, type VoiceRelay } from './relay.ts';

/** Bytes. The relay makes no longer renders. */
const MAX_AUDIO = 64 * 1024 * 1024;
const MAX_MESSAGE = 4 * 1024 * 1024;
/** Milliseconds without a word from the relay, which pings every 20 s. */
const SILENCE = 45_000;
/** Milliseconds in which a lost socket has to be open again; the relay waits for 30 s. */
const COME_BACK = 10_000;
const RETRY_DELAY = 200;
const SEE_DOCTOR = 'See which providers and keys the relay has: svc voice doctor';

/** What is to be said, and with what. Absent members are left to the settings of the relay. */
export interface SpeechRequest {
  text: string;
  profile?: string;
  provider?: string;
  model?: string;
  voice?: string;
  sample_rate?: number;
  language?: string;
}

/** A part of the speech, 16-bit little-endian mono. */
export interface SpeechPart {
  pcm: Buffer;
  /** Hertz. */
  sampleRate: number;
}

/** What was said, and how fast it came. */
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
  /** Whether the connection was lost and taken up again. */
  resumed: boolean;
  eventLog: string;
}

/**
 * Has the relay say a text by `/voice/output`, as a phone does: a session, its socket, one resume when the socket is lost
 * (contract 05 §12, §16). `heard` gets every sample once, in order.
 * @throws CommandError with the relay's reason.
 */
export async function speak(
  relay: VoiceRelay,
  request: SpeechRequest,
  heard: (part: SpeechPart) => void,
): Promise<Speech> {
  const began = performance.now();
  const { text, ...voice } = request;
  const session = await relay.call({ method: 'POST', path: '/voice/output/session', body: voice });
  const { websocket_path: path, resume_token: resumeToken } = session;
  if (typeof path !== 'string' || !path.startsWith('/voice/output/') || typeof resumeToken !== 'string') {
    throw new CommandError(`the relay on ${relay.name} answers like another version`, 'Restart it, and try again.');
  }
  const listener = new Listener(relay, path, began, heard);
  const start = [{ type: 'session.start' }, { type: 'response.create', text }];
  return keepAlive(listener.listen(start, () => resumeMessage(resumeToken, listener)));
}

const resumeMessage = (resumeToken: string, { lastEvent, lastAudio }: Listener) => ({
  type: 'session.resume',
  resume_token: resumeToken,
  last_event_id: lastEvent,
  last_audio_event_id: lastAudio,
  last_played_audio_event_id: 0,
});

/** The socket was lost, which is no failure yet. */
class Lost extends Error {}

/** One session of voice output, over one socket or two. */
class Listener {
  lastEvent = 0;
  lastAudio = 0;
  readonly #relay: VoiceRelay;
  readonly #path: string;
  readonly #began: number;
  readonly #heard: (part: SpeechPart) => void;
  #bytes = 0;
  #sampleRate = 0;
  #firstAudioMs = 0;
  #resumed = false;

  constructor(relay: VoiceRelay, path: string, began: number, heard: (part: SpeechPart) => void) {
    this.#relay = relay;
    this.#path = path;
    this.#began = began;
    this.#heard = heard;
  }

  async listen(start: object[], resume: () => object): Promise<Speech> {
    try {
      return await this.#connect(start);
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      this.#resumed = true;
      return await this.#comeBack(resume, error);
    }
  }

  /** Takes the session up again, once. Opening the socket is tried for ten seconds. */
  async #comeBack(resume: () => object, why: Lost): Promise<Speech> {
    const heardBefore = this.lastEvent;
    const deadline = performance.now() + COME_BACK;
    for (let last = why; ; ) {
      try {
        return await this.#connect([resume()]);
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        last = error;
      }
      if (this.lastEvent > heardBefore || performance.now() > deadline) {
        throw new CommandError(
          `the connection to the relay on ${this.#relay.name} was lost: ${printable(last.message)}`,
          'Check the network, and that the relay runs: svc relay doctor',
        );
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY));
      throwIfStopped(this.#relay.signal);
    }
  }

  /** Opens a socket, sends `first`, and listens to the end of the response. Throws `Lost` when the socket ends before. */
  #connect(first: object[]): Promise<Speech> {
    const { signal } = this.#relay;
    const { url, ...options } = this.#relay.socket(this.#path);
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, {
        ...options,
        perMessageDeflate: false,
        maxPayload: MAX_MESSAGE,
        handshakeTimeout: COME_BACK,
      });
      const send = (message: object) => socket.send(JSON.stringify(message));
      let failure = '';
      let silence: NodeJS.Timeout | undefined;
      const alive = () => {
        clearTimeout(silence);
        silence = setTimeout(() => {
          failure = `nothing was heard for ${SILENCE / 1000} s`;
          socket.terminate();
        }, SILENCE);
      };
      const settle = (act: () => void, code: number) => {
        act();
        socket.close(code);
        // A relay that has nothing more to say answers at once.
        setTimeout(() => socket.terminate(), 1000).unref();
      };
      const abort = () => {
        settle(() => reject(new CommandError('stopped')), 1000);
      };
      signal.addEventListener('abort', abort, { once: true });
      socket.on('open', () => {
        for (const message of first) send(message);
      });
      for (const sign of ['open', 'ping', 'message'] as const) socket.on(sign, alive);
      socket.on('message', (data) => {
        try {
          const event = this.#read(parseObject(String(data)) ?? {});
          if (event.ack) send(event.ack);
          if (event.speech) settle(() => resolve(event.speech as Speech), 1000);
        } catch (error) {
          settle(() => reject(error), 1011);
        }
      });
      socket.on('unexpected-response', (_request, response) => {
        const status = response.statusCode ?? 0;
        response.resume();
        reject(new CommandError(`the relay refused the socket of the session (HTTP ${status})`, nextAfter({ status })));
        socket.terminate();
      });
      socket.on('error', (error) => {
        failure ||= error.message;
      });
      socket.on('close', (code, reason) => {
        clearTimeout(silence);
        signal.removeEventListener('abort', abort);
        const words = String(reason) || failure || `closed ${code}`;
        const isFinal = code === 1000 || (code >= 4000 && code < 5000);
        reject(
          isFinal ? new CommandError(`the relay ended the session: ${printable(words)}`, SEE_DOCTOR) : new Lost(words),
        );
      });
    });
  }

  /** Reads one event: audio goes to the listener. Returns the acknowledgement, and the outcome after the last event. */
  #read(event: Record<string, unknown>): { ack?: object; speech?: Speech } {
    const { type, event_id: id, audio_event_id: audioId } = event;
    if (typeof type !== 'string') return {};
    if (type === 'voice.session.resume_failed') {
      throw new CommandError('the relay did not resume the session after the connection was lost', 'Run it again.');
    }
    if (type === 'voice.error') throw new CommandError(printable(String(event.message)), SEE_DOCTOR);
    if (type === 'voice.audio.delta') this.#audio(event, audioId);
    if (/^voice\.(?:session|replay)\./.test(type) || typeof id !== 'number') return {};
    this.lastEvent = Math.max(this.lastEvent, id);
    const ack = { type: 'client.ack', event_id: this.lastEvent, audio_event_id: this.lastAudio };
    return type === 'voice.response.done' ? { ack, speech: this.#outcome(event) } : { ack };
  }

  #audio({ audio_base64: text, sample_rate: rate }: Record<string, unknown>, id: unknown): void {
    if (id !== this.lastAudio + 1) {
      throw new CommandError(`a part of the speech is missing: ${id} came after ${this.lastAudio}`, 'Run it again.');
    }
    const pcm = Buffer.from(String(text), 'base64');
    if (this.lastAudio === 0) {
      this.#firstAudioMs = performance.now() - this.#began;
      this.#sampleRate = Number(rate);
    }
    this.lastAudio = id;
    this.#bytes += pcm.length;
    if (this.#bytes > MAX_AUDIO) throw new CommandError('the speech is longer than 64 MiB', 'Use a shorter text.');
    this.#heard({ pcm, sampleRate: this.#sampleRate });
  }

  #outcome(event: Record<string, unknown>): Speech {
    const { provider, model, voice, event_log_path: eventLog } = asObject(event) ?? {};
    const text = (value: unknown) => (typeof value === 'string' ? printable(value) : '');
    return {
      provider: text(provider),
      model: text(model),
      voice: text(voice),
      sampleRate: this.#sampleRate,
      bytes: this.#bytes,
      firstAudioMs: Math.round(this.#firstAudioMs),
      totalMs: Math.round(performance.now() - this.#began),
      resumed: this.#resumed,
      eventLog: text(eventLog),
    };
  }
}
