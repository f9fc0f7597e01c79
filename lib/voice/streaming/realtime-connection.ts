import type { DialUpstream, UpstreamSocket } from '../../host/upstream-socket.ts';
import { fromBase64 } from '../../kit/bytes.ts';
import { asObject, isObject } from '../../kit/json.ts';
import { parseSimpleJson } from '../../kit/long-json.ts';

/** Bytes of the largest event of a provider. */
const MAX_MESSAGE = 4 * 1024 * 1024;
/** Characters of events that wait to be taken: above the first the provider is not read, below the second it is again. */
const HIGH_WATER = 1024 * 1024;
const LOW_WATER = 256 * 1024;
/** Counted for each event besides its characters, because an empty one takes memory too. */
const OVERHEAD = 256;

/** What a realtime provider reports, whatever it calls it (contract 05 §13). */
export type RealtimeEvent =
  | { type: 'audio'; bytes: Uint8Array }
  | { type: 'transcript'; text: string }
  | { type: 'done' }
  | { type: 'error'; message: string }
  | { type: 'closed'; code: number };

const AUDIO = new Set(['response.output_audio.delta', 'response.audio.delta']);
const TRANSCRIPT = new Set([
  'response.output_audio_transcript.delta',
  'response.audio_transcript.delta',
  'response.output_text.delta',
  'response.text.delta',
]);

/** One message of a provider; null for an event without meaning here. What cannot be understood is an error. */
export function parseRealtimeEvent(text: string): RealtimeEvent | null {
  const event = asObject(parseSimpleJson(text));
  if (!event || typeof event.type !== 'string')
    return { type: 'error', message: 'an event is not a JSON object with a type' };
  const { type, delta } = event;
  if (AUDIO.has(type)) {
    const bytes = typeof delta === 'string' ? fromBase64(delta) : null;
    return bytes ? { type: 'audio', bytes } : { type: 'error', message: 'the audio is not valid base64' };
  }
  if (TRANSCRIPT.has(type)) return typeof delta === 'string' ? { type: 'transcript', text: delta } : null;
  if (type === 'error') return { type: 'error', message: errorText(event.error ?? event) };
  if (type !== 'response.done') return null;
  const response = isObject(event.response) ? event.response : {};
  if (response.status !== 'failed') return { type: 'done' };
  const details = isObject(response.status_details) ? response.status_details : {};
  return { type: 'error', message: errorText(details.error ?? details) };
}

function errorText(error: unknown): string {
  const { message, code, type } = isObject(error) ? error : { message: error };
  for (const text of [message, code, type]) if (typeof text === 'string' && text.trim() !== '') return text.trim();
  return 'failed without a reason';
}

export interface RealtimeConnection {
  send(message: Record<string, unknown>): void;
  /**
   * The next event, of which `closed` is the last. The provider is read no faster than events are taken. One caller at a
   * time. Throws the reason of the signal.
   */
  next(): Promise<RealtimeEvent>;
  close(): void;
}

export interface RealtimeTarget {
  url: string;
  secret: string;
  model: string;
  /** Drops the connection. */
  signal: AbortSignal;
}

/** Connects to a realtime provider. Throws what dialling throws. */
export async function connectRealtime(
  dialUpstream: DialUpstream,
  { url, secret, model, signal }: RealtimeTarget,
): Promise<RealtimeConnection> {
  const waiting: string[] = [];
  let size = 0;
  let isPaused = false;
  let isClosed = false;
  let code = 1006;
  let socket: UpstreamSocket | undefined;
  let wake = () => {};
  const target = new URL(url);
  target.searchParams.set('model', model);

  socket = await dialUpstream(
    {
      url: target.href,
      headers: { authorization: `Bearer ${secret}` },
      signal,
      maxMessage: MAX_MESSAGE,
    },
    {
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
    },
  );
  signal.addEventListener('abort', () => wake(), { once: true });
  // Events may have arrived before there was a socket to pause.
  if (size > HIGH_WATER) pause();

  function pause(): void {
    if (isPaused || !socket) return;
    isPaused = true;
    socket.pause();
  }

  /** The next message; undefined once the socket has closed and all are taken. */
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
