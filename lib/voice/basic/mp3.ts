import { concatBytes } from '../../kit/bytes.ts';
import { nextTurn } from '../../kit/clock.ts';

/** kbit/s: transparent for one voice at 24 kHz. */
const BIT_RATE = 64;
/** Samples per encoding step, two frames of the format. About 1 ms of CPU. */
const STEP = 1152;
/** Milliseconds after which the event loop gets a turn. */
const SLICE = 8;
/** Supported sample rates, hertz. */
const RATES = [8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];

/** True if `encodeMp3` supports this sample rate. */
export const isMp3Rate = (rate: number): boolean => RATES.includes(rate);

/** Bytes within which the first frame of a file has to begin. */
const MAX_SEARCH = 4096;
/** Shorter inputs are not examined. */
const MIN_JUDGED = 64;
const BIT_RATES_1 = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const BIT_RATES_2 = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const FRAME_RATES = [44_100, 48_000, 32_000];

/** Returns the length of the MP3 frame at an offset, or 0 if no frame begins there. */
function frameLength(bytes: Uint8Array, at: number): number {
  const [first, second, third] = bytes.subarray(at, at + 3);
  if (first !== 0xff || second === undefined || third === undefined || (second & 0xe0) !== 0xe0) return 0;
  const version = (second >> 3) & 3;
  const bits = third >> 4;
  const rate = FRAME_RATES[(third >> 2) & 3];
  if (((second >> 1) & 3) !== 1 || version === 1 || bits === 0 || bits === 15 || rate === undefined) return 0;
  const isFirst = version === 3;
  const kilobits = (isFirst ? BIT_RATES_1 : BIT_RATES_2)[bits] as number;
  const divisor = isFirst ? 1 : version === 2 ? 2 : 4;
  const padding = (third >> 1) & 1;
  return Math.floor(((isFirst ? 144_000 : 72_000) * kilobits) / (rate / divisor)) + padding;
}

/** True for MP3 bytes: by a tag, or by two consecutive frames. */
export function isMp3(bytes: Uint8Array): boolean {
  if (bytes.length < MIN_JUDGED || startsWith(bytes, 'ID3')) return startsWith(bytes, 'ID3');
  for (let at = 0; at < Math.min(bytes.length, MAX_SEARCH); at++) {
    const length = frameLength(bytes, at);
    if (length > 0 && (at + length === bytes.length || frameLength(bytes, at + length) > 0)) return true;
  }
  return false;
}

/** Magic bytes of other formats. */
const FILES = ['OggS', 'fLaC', 'RIFF', 'FORM', '#!AMR', '\x1aE\xdf\xa3'];

/** True if bytes match no known format, like raw samples. */
export const isUnknown = (bytes: Uint8Array): boolean =>
  bytes.length >= MIN_JUDGED &&
  !FILES.some((start) => startsWith(bytes, start)) &&
  !startsWith(bytes.subarray(4), 'ftyp') &&
  // A frame of AAC.
  !(bytes[0] === 0xff && ((bytes[1] as number) & 0xf6) === 0xf0);

const startsWith = (bytes: Uint8Array, start: string): boolean =>
  [...start].every((character, at) => bytes[at] === character.charCodeAt(0));

/**
 * Encodes mono 16-bit little-endian PCM as MP3, for providers without MP3. A chunk may end within a sample; half a sample at
 * the very end is dropped. Works on both runtimes, and yields to the event loop every few milliseconds, since a minute of
 * audio takes 1.5 s of CPU.
 * @throws the signal's reason once it aborts.
 */
export async function encodeMp3(pcm: Iterable<Uint8Array>, rate: number, signal: AbortSignal): Promise<Uint8Array> {
  // Loaded on demand: 250 KB that only one provider uses.
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
    // The encoder returns a view of a buffer that it reuses.
    frames.push(Uint8Array.from(encoder.encodeBuffer(samples)));
  }
  frames.push(Uint8Array.from(encoder.flush()));
  return concatBytes(...frames);
}

/** Samples of a byte stream in arrays of `STEP`, the last one shorter. An array is valid until the next one. */
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
