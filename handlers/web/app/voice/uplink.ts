import { base64 } from '../../../../lib/kit/bytes.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';

/** Samples per message: 0.2 seconds of speech (contract 06 §9). */
const CHUNK = 3200;
/** Chunks that may be unacknowledged; on a slow connection, the rest waits here. */
const WINDOW = 15;
/** Chunks that are stored until they are acknowledged, 12 seconds of speech. */
const MAX_KEPT = 60;

const CLEAR: JsonObject = { type: 'input_audio.clear' };

export interface UplinkDeps {
  send(message: JsonObject): void;
  /** Speech was dropped before it was sent. */
  onLost(): void;
}

/** A chunk of an utterance, or its end. */
type Item = { type: 'chunk'; id: number; message: JsonObject; isSent: boolean } | { type: 'end'; isSent: boolean };

/**
 * Speech on its way to the relay, in chunks that the relay acknowledges. It waits while disconnected, and unacknowledged
 * chunks are sent again over the next connection (contract 06 §4).
 */
export function createUplink({ send, onLost }: UplinkDeps) {
  let items: Item[] = [];
  let samples = new Int16Array(CHUNK);
  let filled = 0;
  let lastId = 0;
  let isConnected = false;
  /** True if the relay may have the beginning of dropped speech. */
  let isClearDue = false;

  const chunks = () => items.filter((item) => item.type === 'chunk');

  function pump(): void {
    if (!isConnected) return;
    let onTheWay = chunks().filter(({ isSent }) => isSent).length;
    for (const item of items) {
      if (item.isSent) continue;
      if (item.type === 'chunk' && ++onTheWay > WINDOW) return;
      item.isSent = true;
      send(item.type === 'chunk' ? item.message : { type: 'input_audio.commit' });
    }
  }

  function flush(rate: number): void {
    if (filled === 0) return;
    const bytes = new Uint8Array(samples.buffer, 0, filled * 2);
    const id = ++lastId;
    const message = { type: 'input_audio.append', audio_base64: base64(bytes), sample_rate: rate, chunk_id: id };
    items.push({ type: 'chunk', id, message, isSent: false });
    samples = new Int16Array(CHUNK);
    filled = 0;
    if (chunks().length <= MAX_KEPT) return;
    const oldest = chunks().find(({ isSent }) => !isSent);
    items = items.filter((item) => item !== oldest);
    onLost();
  }

  return {
    /** Takes 16-bit samples of an utterance. */
    push(frame: Int16Array, rate: number): void {
      for (let at = 0; at < frame.length; ) {
        const part = frame.subarray(at, at + CHUNK - filled);
        samples.set(part, filled);
        filled += part.length;
        at += part.length;
        if (filled === CHUNK) flush(rate);
      }
      pump();
    },

    /** The utterance is over. */
    commit(rate: number): void {
      flush(rate);
      items.push({ type: 'end', isSent: false });
      pump();
    },

    /** The unfinished utterance is not to be answered. */
    drop(): void {
      items = items.slice(0, items.findLastIndex(({ type }) => type === 'end') + 1);
      filled = 0;
      isClearDue = !isConnected;
      if (isConnected) send(CLEAR);
    },

    /** The relay has received a chunk, and all before it. */
    acknowledge(id: number): void {
      items = items.filter((item) => item.type === 'end' || item.id > id);
      pump();
    },

    /** The relay has received an utterance to its end. */
    heard(): void {
      const at = items.findIndex(({ type, isSent }) => type === 'end' && isSent);
      // Chunks before the end were received with it.
      if (at >= 0) items = items.slice(at + 1);
    },

    /** Connected: sends everything that was not acknowledged. */
    connect(): void {
      for (const item of items) item.isSent = false;
      isConnected = true;
      if (isClearDue) send(CLEAR);
      isClearDue = false;
      pump();
    },

    disconnect(): void {
      isConnected = false;
    },

    /** True if speech is in transit. */
    isWaiting: (): boolean => items.some(({ type, isSent }) => type === 'chunk' && isSent),

    /** Starts over for a new session. */
    reset(): void {
      items = [];
      filled = 0;
      lastId = 0;
      isConnected = false;
      isClearDue = false;
    },
  };
}
