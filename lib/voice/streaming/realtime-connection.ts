import type { DialUpstream, UpstreamSocket, UpstreamSocketEvents } from '../../host/upstream-socket.ts';
import {
  AUDIO_DELTA,
  audioOf,
  errorIn,
  errorText,
  failureOf,
  NOT_AN_EVENT,
  NOT_BASE64,
  readEvent,
  TEXT_DELTA,
} from './realtime-events.ts';

/** Bytes of the largest event of a provider. */
const MAX_MESSAGE = 4 * 1024 * 1024;
/** Characters of buffered events above which the provider is not read, and below which it is again. */
const HIGH_WATER = 1024 * 1024;
const LOW_WATER = 256 * 1024;
/** Added to the characters of each event, because an empty one takes memory too. */
const OVERHEAD = 256;

/** An event of a realtime provider, independent of the provider's names (contract 05 §13). */
export type RealtimeEvent =
  | { type: 'audio'; bytes: Uint8Array }
  | { type: 'transcript'; text: string }
  | { type: 'done' }
  | { type: 'error'; message: string }
  | { type: 'closed'; code: number };

/** One message of a provider; null for an irrelevant event. Any other message is an error. */
export function parseRealtimeEvent(text: string): RealtimeEvent | null {
  const event = readEvent(text);
  if (!event) return { type: 'error', message: NOT_AN_EVENT };
  const { type, delta } = event;
  if (AUDIO_DELTA.has(type)) {
    const bytes = audioOf(event);
    return bytes ? { type: 'audio', bytes } : { type: 'error', message: NOT_BASE64 };
  }
  if (TEXT_DELTA.has(type)) return typeof delta === 'string' ? { type: 'transcript', text: delta } : null;
  if (type === 'error') return { type: 'error', message: errorText(errorIn(event)) };
  if (type !== 'response.done') return null;
  const failure = failureOf(event);
  return failure === undefined ? { type: 'done' } : { type: 'error', message: failure };
}

export interface RealtimeConnection {
  send(message: Record<string, unknown>): void;
  /**
   * The next event, of which `closed` is the last. The provider is read no faster than events are consumed. One caller at a
   * time. Throws the reason of the signal.
   */
  next(): Promise<RealtimeEvent>;
  close(): void;
}

export interface RealtimeTarget {
  url: string;
  /** Empty for a server of the owner that needs no key. */
  secret: string;
  model: string;
  /** In addition to the authorization. */
  headers?: Readonly<Record<string, string>>;
  /** Milliseconds, as in `UpstreamSocketRequest`. */
  connectTimeout?: number;
  pingInterval?: number;
  /** Drops the connection. */
  signal: AbortSignal;
}

/** Dials a realtime provider. Throws the errors of dialling. */
export function dialRealtime(
  dialUpstream: DialUpstream,
  { url, secret, model, headers, ...rest }: RealtimeTarget,
  events: UpstreamSocketEvents,
): Promise<UpstreamSocket> {
  const target = new URL(url);
  target.searchParams.set('model', model);
  const request = {
    url: target.href,
    headers: { ...headers, ...(secret !== '' && { authorization: `Bearer ${secret}` }) },
    maxMessage: MAX_MESSAGE,
  };
  return dialUpstream({ ...request, ...rest }, events);
}

/** Connects to a realtime provider, whose events are then read one by one. Throws the errors of dialling. */
export async function connectRealtime(
  dialUpstream: DialUpstream,
  realtime: RealtimeTarget,
): Promise<RealtimeConnection> {
  const { signal } = realtime;
  const waiting: string[] = [];
  let size = 0;
  let isPaused = false;
  let isClosed = false;
  let code = 1006;
  let socket: UpstreamSocket | undefined;
  let wake = () => {};

  socket = await dialRealtime(dialUpstream, realtime, {
    message(text) {
      waiting.push(text);
      size += text.length + OVERHEAD;
      if (size > HIGH_WATER) pause();
      wake();
    },
    closed(end) {
      isClosed = true;
      code = end.code;
      wake();
    },
  });
  signal.addEventListener('abort', () => wake(), { once: true });
  // Events may have arrived before the socket could be paused.
  if (size > HIGH_WATER) pause();

  function pause(): void {
    if (isPaused || !socket) return;
    isPaused = true;
    socket.pause();
  }

  /** The next message; undefined once the socket has closed and all were read. */
  async function take(): Promise<string | undefined> {
    while (waiting.length === 0 && !isClosed) {
      signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    signal.throwIfAborted();
    const text = waiting.shift();
    if (text !== undefined) size -= text.length + OVERHEAD;
    if (isPaused && size < LOW_WATER) {
      isPaused = false;
      socket?.resume();
    }
    return text;
  }

  return {
    send: (message) => socket.send(JSON.stringify(message)),
    async next() {
      for (;;) {
        const text = await take();
        if (text === undefined) return { type: 'closed', code };
        const event = parseRealtimeEvent(text);
        if (event) return event;
      }
    },
    close: () => socket.close(1000),
  };
}
