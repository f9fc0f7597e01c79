import { WebSocket } from 'ws';
import { TIMEOUT } from '../limits.ts';
import type { VoiceEvent } from './client.ts';

export interface PhoneOptions {
  /** `ws://` URL of the session's socket, through which network ever. */
  url(): string;
  token: string;
  resumeToken: string;
  text: string;
}

export type VoicePhone = ReturnType<typeof startVoicePhone>;

/**
 * A phone that speaks one text by voice output and follows the contract (05 §12, §16): it acknowledges every event, keeps
 * its cursors, comes back with them whenever its socket ends, and closes with 1000 after the last event.
 */
export function startVoicePhone({ url, token, resumeToken, text }: PhoneOptions) {
  /** Every event that was not ignored, in order. */
  const events: VoiceEvent[] = [];
  const pcm: Buffer[] = [];
  const closes: number[] = [];
  let [lastEvent, lastAudio, connects] = [0, 0, 0];
  let socket: WebSocket;
  let isDone = false;
  let finish: (error?: Error) => void = () => {};
  const finished = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`the phone heard only ${lastAudio} deltas`)), TIMEOUT);
    finish = (error) => {
      clearTimeout(timer);
      isDone = true;
      if (error) reject(error);
      else resolve();
    };
  });
  finished.catch(() => {});

  function connect(first: (send: (message: unknown) => void) => void): void {
    const own = new WebSocket(url(), { perMessageDeflate: false, headers: { authorization: `Bearer ${token}` } });
    const previous = socket;
    socket = own;
    connects++;
    const send = (message: unknown) => own.readyState === WebSocket.OPEN && own.send(JSON.stringify(message));
    own.on('open', () => first(send));
    own.on('message', (data) => {
      // A phone that changes networks listens to the newer socket from the moment it has claimed.
      if (own === socket) receive(JSON.parse(String(data)), send);
    });
    own.on('error', () => {});
    own.on('close', (code) => {
      closes.push(code);
      if (own !== socket || isDone) return;
      if (code === 1006 || code === 1001) setTimeout(() => !isDone && own === socket && resume(), 5);
      else finish(new Error(`the relay closed the socket with ${code}`));
    });
    // A socket without a network may take long to notice.
    if (previous?.readyState === WebSocket.CONNECTING) previous.terminate();
  }

  function receive(event: VoiceEvent, send: (message: unknown) => void): void {
    const { type, event_id, audio_event_id } = event;
    events.push(event);
    if (type === 'voice.session.resume_failed') finish(new Error(`resume failed: ${event.reason}`));
    if (type === 'voice.replay.started' && event.gap) finish(new Error('events were lost'));
    if (audio_event_id !== undefined) {
      if (audio_event_id !== lastAudio + 1) finish(new Error(`delta ${audio_event_id} came after ${lastAudio}`));
      lastAudio = audio_event_id as number;
      pcm.push(Buffer.from(String(event.audio_base64), 'base64'));
    }
    if (/^voice\.(?:session|replay)\./.test(type)) return;
    lastEvent = event_id as number;
    send({ type: 'client.ack', event_id: lastEvent, audio_event_id: lastAudio });
    if (type === 'voice.response.done') {
      finish();
      socket.close(1000);
    } else if (type === 'voice.error') finish(new Error(String(event.message)));
  }

  const resume = () =>
    connect((send) =>
      send({
        type: 'session.resume',
        resume_token: resumeToken,
        last_event_id: lastEvent,
        last_audio_event_id: lastAudio,
        last_played_audio_event_id: 0,
      }),
    );

  connect((send) => {
    send({ type: 'session.start' });
    send({ type: 'response.create', text });
  });

  return {
    events,
    /** Codes of the sockets that have ended. */
    closes,
    connects: () => connects,
    /** Deltas heard. */
    heard: () => lastAudio,
    audio: () => Buffer.concat(pcm),
    /** Resolves when the phone has heard everything; rejects when it lost, or heard twice, anything. */
    finished,
    /** Loses the connection without a word. */
    lose: () => socket.terminate(),
    /** Comes back over another network, with the old socket still open. */
    changeRoute: resume,
    stop(): void {
      isDone = true;
      socket.terminate();
    },
  };
}
