import { concatBytes } from '../../kit/bytes.ts';
import { nextTurn } from '../../kit/clock.ts';

/** kbit/s: transparent for one voice at 24 kHz. */
const BIT_RATE = 64;
/** Samples that one step encodes; two frames of the format. About 1 ms of CPU. */
const STEP = 1152;
/** Milliseconds after which the event loop gets its turn. */
const SLICE = 8;
/** Hertz that the format knows. */
const RATES = [8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];

/** Whether `encodeMp3` takes this sample rate. */
export const isMp3Rate = (rate: number): boolean => RATES.includes(rate);

/**
 * Encodes mono 16-bit little-endian PCM as MP3, for providers that have only that. A sample may be cut by the end of a
 * chunk; half a sample at the very end is dropped. Works on both runtimes, and gives way to the event loop every few
 * milliseconds: a minute of audio takes 1.5 s of CPU.
 * @throws the signal's reason once it aborts.
 */
export async function encodeMp3(pcm: Iterable<Uint8Array>, rate: number, signal: AbortSignal): Promise<Uint8Array> {
  // Loaded when it is needed: 250 KB that only one provider uses.
  const { Mp3Encoder } = await import('@breezystack/lamejs');
  const encoder = new Mp3Encoder(1, rate, BIT_RATE);
  const frames: Uint8Array[] = [];
  let turnEnds = performance.now() + SLICE;
  for (const samples of steps(pcm)) {
    if (performance.now() >= turnEnds) {
      await nextTurn();
      turnEnds = performance.now() + SLICE;
    }
    signal.throwIfAborted();
    // The encoder returns a view of a buffer that it uses again.
    frames.push(Uint8Array.from(encoder.encodeBuffer(samples)));
  }
  frames.push(Uint8Array.from(encoder.flush()));
  return concatBytes(...frames);
}

/** Samples of a byte stream, `STEP` at a time and fewer at its end. The array is valid until the next one. */
function* steps(pcm: Iterable<Uint8Array>): Generator<Int16Array> {
  const samples = new Int16Array(STEP);
  let count = 0;
  let low: number | undefined;
  for (const bytes of pcm) {
    for (const byte of bytes) {
      if (low === undefined) {
        low = byte;
        continue;
      }
      samples[count++] = low | (byte << 8);
      low = undefined;
      if (count < STEP) continue;
      yield samples;
      count = 0;
    }
  }
  if (count > 0) yield samples.subarray(0, count);
}
