import { type Cancel, systemClock } from '../../../../lib/kit/clock.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import { errorOf } from '../../shared/api.ts';
import { messageOf } from '../../shared/load.tsx';
import type { App } from '../context.ts';
import { openVoiceSocket, type VoiceSocket } from './socket.ts';

/** Answer of `POST /voice/realtime-agent/session` (contract 06 §3.3), as far as it is used. */
interface Created {
  websocket_path: string;
  resume_token: string;
}

export interface LiveLinkDeps {
  app: App;
  /** An event of the conversation, each once. */
  onEvent(event: JsonObject): void;
  /** Ready for speech: for the first time, or again. */
  onConnected(): void;
  /** The connection was lost, and is being established again. */
  onLost(): void;
  /** The session has ended, with the reason worded for people; empty if it ended quietly. */
  onEnded(why: string): void;
}

/** Milliseconds before each attempt to connect again; the last one repeats. */
const WAITS = [0, 500, 1000, 2000, 4000, 8000];
/** Milliseconds after which a reconnect is given up (contract 06 §4.1). */
const GIVE_UP = 300_000;

const NO_ANSWER = 'The relay does not answer.';
const FORGOTTEN = 'The relay no longer has this conversation. Start again.';

/** Why the relay closed the socket permanently (contract 06 §4.1). Every other code is a lost connection. */
const ENDS: Readonly<Record<number, string>> = {
  1000: '',
  1009: 'The relay refused a message of this page.',
  4000: 'This conversation continues elsewhere.',
  4003: FORGOTTEN,
  4008: FORGOTTEN,
  4009: FORGOTTEN,
  4401: 'This device may no longer talk to the agent: its session or its grant voice:realtime has ended.',
};

export type LiveLink = ReturnType<typeof createLiveLink>;

/** One session of the realtime agent, whose socket survives lost connections without loss or repetition. */
export function createLiveLink({ app, onEvent, onConnected, onLost, onEnded }: LiveLinkDeps) {
  const { api } = app;
  const request = new AbortController();
  let created: Created | null = null;
  let socket: VoiceSocket | null = null;
  let cancelRetry: Cancel = () => {};
  let attempts = 0;
  let lostAt = 0;
  let isReady = false;
  let isOver = false;
  const cursors = { last_event_id: 0, last_audio_event_id: 0, last_played_audio_event_id: 0, last_input_chunk_id: 0 };

  function end(why: string): void {
    if (isOver) return;
    close();
    onEnded(why);
  }

  /** Leaves silently: a background run continues, and its answer comes as a message (contract 06 §4.1). */
  function close(): void {
    isOver = true;
    request.abort();
    cancelRetry();
    removeEventListener('online', retry);
    socket?.close('session ended');
  }

  async function open(body: JsonObject): Promise<void> {
    try {
      const options = { method: 'POST', body, signal: request.signal } as const;
      created = await api.call<Created>('voice/realtime-agent/session', options);
      if (isOver) return;
      addEventListener('online', retry);
      connect();
    } catch (error) {
      end(messageOf(error));
    }
  }

  function connect(): void {
    if (!created || isOver) return;
    cancelRetry();
    const { websocket_path, resume_token } = created;
    const own = openVoiceSocket(app, websocket_path, {
      open() {
        own.send(isReady ? { type: 'session.resume', resume_token, ...cursors } : { type: 'session.start' });
      },
      message: (event) => own === socket && receive(event),
      close(code, wasOpen) {
        if (own !== socket || isOver) return;
        socket = null;
        if (wasOpen && ENDS[code] !== undefined) end(ENDS[code]);
        else if (wasOpen) lose();
        else void explainRefusal(websocket_path);
      },
    });
    socket?.close('superseded');
    socket = own;
  }

  function lose(): void {
    if (attempts === 0) {
      lostAt = systemClock.monotonic();
      onLost();
    }
    if (systemClock.monotonic() - lostAt > GIVE_UP) {
      end(NO_ANSWER);
      return;
    }
    const wait = WAITS[Math.min(attempts++, WAITS.length - 1)] ?? 0;
    cancelRetry = systemClock.after(wait, connect);
  }

  /** Retries at once, without waiting. */
  function retry(): void {
    if (isOver || (isReady && attempts === 0)) return;
    cancelRetry();
    connect();
  }

  /** A page cannot see why its socket was refused, so a plain request asks, which also renews an expired token. */
  async function explainRefusal(path: string): Promise<void> {
    try {
      const response = await api.fetchRaw(path.replace(/^\//, ''), { signal: request.signal });
      if (isOver) return;
      if (response.status === 401 || response.status === 403) return end((await errorOf(response)).message);
      // The relay answers, and would accept a socket of a known session.
      if (response.status === 426 && attempts > 1) return end(FORGOTTEN);
    } catch {
      // Still no connection.
    }
    if (!isOver) lose();
  }

  function receive(event: JsonObject): void {
    const { type, event_id, audio_event_id, input_chunk_id } = event;
    switch (type) {
      case 'voice.session.ready':
      case 'voice.session.resumed':
        [isReady, attempts] = [true, 0];
        onConnected();
        return;
      case 'voice.session.resume_failed':
        end(FORGOTTEN);
        return;
    }
    if (/^voice\.(?:session|replay)\./.test(String(type))) return;
    if (typeof audio_event_id === 'number') {
      if (audio_event_id <= cursors.last_audio_event_id) return;
      cursors.last_audio_event_id = audio_event_id;
    } else if (typeof event_id === 'number' && event_id <= cursors.last_event_id) return;
    if (typeof event_id === 'number') cursors.last_event_id = Math.max(cursors.last_event_id, event_id);
    if (typeof input_chunk_id === 'number') cursors.last_input_chunk_id = input_chunk_id;
    onEvent(event);
  }

  const send = (message: JsonObject): void => socket?.send(message);

  return {
    open,
    send,
    close,
    /** The connection seems to be dead: establishes another one. */
    replace(): void {
      if (isOver || !isReady || attempts > 0) return;
      lose();
    },
    /** Tells the relay how much of the agent's speech was heard, so that the agent knows that the rest was not. */
    played(audioEventId: number): void {
      if (audioEventId <= cursors.last_played_audio_event_id) return;
      cursors.last_played_audio_event_id = audioEventId;
      const { last_event_id: event_id, last_audio_event_id: audio_event_id } = cursors;
      send({ type: 'client.ack', event_id, audio_event_id, played_audio_event_id: audioEventId });
    },
    /** Number of the last piece that was heard. */
    lastPlayed: (): number => cursors.last_played_audio_event_id,
  };
}
