import { RelayError } from '../../errors.ts';

/** Bytes of an output chunk. */
const CHUNK_BYTES = 4096;
/** Bytes of one render: more than ten minutes of speech at 48 kHz, where 5000 characters take about six. */
const MAX_AUDIO_BYTES = 64 * 1024 * 1024;

/**
 * Cuts a byte stream of 16-bit samples into chunks of 4096 bytes, the last one shorter. An odd byte waits for its other
 * half, and is dropped at the end of the stream. Throws `bad-gateway` if the stream is longer than `limit` bytes.
 */
export async function* sampleChunks(
  source: AsyncIterable<Uint8Array>,
  limit = MAX_AUDIO_BYTES,
): AsyncGenerator<Uint8Array> {
  let held = new Uint8Array(CHUNK_BYTES);
  let size = 0;
  let total = 0;
  for await (const bytes of source) {
    total += bytes.length;
    if (total > limit) throw new RelayError('bad-gateway', `the provider sent more than ${limit} bytes of audio`);
    for (let at = 0; at < bytes.length; ) {
      const part = bytes.subarray(at, at + CHUNK_BYTES - size);
      held.set(part, size);
      size += part.length;
      at += part.length;
      if (size < CHUNK_BYTES) break;
      yield held;
      held = new Uint8Array(CHUNK_BYTES);
      size = 0;
    }
  }
  const whole = size - (size % 2);
  if (whole > 0) yield held.slice(0, whole);
}

export interface Levels {
  /** 0 to 1, with 4 decimals. */
  peak: number;
  /** 0 to 1, with 4 decimals. */
  rms: number;
}

const FULL_SCALE = 32_768;
const rounded = (level: number): number => Math.round(level * 10_000) / 10_000;

/** Peak and root mean square of 16-bit little-endian samples; 0 for none. */
export function levelsOf(pcm: Uint8Array): Levels {
  const view = new DataView(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  const samples = pcm.length >> 1;
  let peak = 0;
  let squares = 0;
  for (let at = 0; at < samples; at++) {
    const sample = view.getInt16(at * 2, true);
    peak = Math.max(peak, Math.abs(sample));
    squares += sample * sample;
  }
  return { peak: rounded(peak / FULL_SCALE), rms: rounded(Math.sqrt(squares / Math.max(samples, 1)) / FULL_SCALE) };
}
