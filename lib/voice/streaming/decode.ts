import { RelayError } from '../../errors.ts';
import { concatBytes } from '../../kit/bytes.ts';
import { MAX_RATE, MIN_RATE } from '../limits.ts';
import { createResampler } from './resample.ts';

/** Bytes within which the samples of a WAV have to begin. */
const MAX_HEAD = 64 * 1024;
/** Bytes needed to recognise a format: a RIFF head, and the header of a frame. */
const MAGIC_BYTES = 12;
const MAGIC: readonly [magic: string, format: AudioFormat][] = [
  ['ID3', 'MP3'],
  ['OggS', 'Ogg'],
  ['fLaC', 'FLAC'],
  ['RIFF', 'WAV'],
];

export type AudioFormat = 'MP3' | 'Ogg' | 'FLAC' | 'WAV';

/** The format of audio by its first bytes, regardless of its label; undefined for raw samples. */
export function formatOf(start: Uint8Array, contentType: string): AudioFormat | undefined {
  const text = String.fromCharCode(...start.subarray(0, MAGIC_BYTES));
  const known = MAGIC.find(([magic]) => text.startsWith(magic));
  if (known) return known[1];
  // The header of a frame could also be two samples, so the type has to agree.
  const isFrame = start[0] === 0xff && ((start[1] ?? 0) & 0xe0) === 0xe0;
  return isFrame && /^audio\/(?:mpeg|mp3|aac)/i.test(contentType) ? 'MP3' : undefined;
}

export interface Decoding {
  contentType: string;
  /** Hertz of raw samples without a rate in their label. */
  assumedRate: number;
  /** Hertz of the result. */
  rate: number;
  /** The provider's name, for errors. */
  name: string;
}

/**
 * 16-bit little-endian mono samples at `rate` from a provider's raw PCM, which has the `rate=` of its label, or from a WAV
 * of any rate, channels and width (contract 05 §18). A chunk may end within a sample, unless the rate is changed.
 * @throws RelayError `bad-gateway` for another format, and a WAV that cannot be read.
 */
export async function* decodeSamples(
  body: AsyncIterable<Uint8Array>,
  { contentType, assumedRate, rate, name }: Decoding,
): AsyncGenerator<Uint8Array> {
  const fail = (what: string, more = ''): RelayError =>
    new RelayError('bad-gateway', `${name} sent ${what} instead of raw PCM${more}`);
  const chunks = body[Symbol.asyncIterator]();
  try {
    let start: Uint8Array = new Uint8Array(0);
    while (start.length < MAGIC_BYTES) {
      const { done, value } = await chunks.next();
      if (done) break;
      start = concatBytes(start, value);
    }
    const format = formatOf(start, contentType);
    if (format !== undefined && format !== 'WAV') throw fail(format);
    let source: Samples = { rate: labelledRate(contentType) ?? assumedRate, bytes: 2, toMono: undefined };
    if (format === 'WAV') {
      let head = readHead(start);
      while (head === undefined && start.length < MAX_HEAD) {
        const { done, value } = await chunks.next();
        if (done) break;
        start = concatBytes(start, value);
        head = readHead(start);
      }
      if (!head) throw fail('WAV', ', and it cannot be read');
      source = head;
      start = start.subarray(head.start);
    }
    if (source.rate < MIN_RATE || source.rate > MAX_RATE) throw fail(`audio of ${source.rate} Hz`);
    const convert = converter(source, rate);
    let left = source.length ?? Number.POSITIVE_INFINITY;
    for (let bytes: Uint8Array | undefined = start; bytes; ) {
      const samples = convert(bytes.subarray(0, left));
      left -= bytes.length;
      if (samples.length > 0) yield samples;
      // Bytes after the samples are not sound.
      if (left <= 0) return;
      const next = await chunks.next();
      bytes = next.done ? undefined : next.value;
    }
  } finally {
    await chunks.return?.();
  }
}

/** `rate=` of a label such as `audio/L16;rate=16000`. */
const labelledRate = (contentType: string): number | undefined => {
  const rate = /;\s*rate=(\d{4,6})/i.exec(contentType)?.[1];
  return rate === undefined ? undefined : Number(rate);
};

interface Samples {
  /** Hertz. */
  rate: number;
  /** Bytes of one sample in all channels. */
  bytes: number;
  /** Reads the 16-bit sample at an offset; undefined if samples already are 16-bit mono. */
  toMono: ((view: DataView, at: number) => number) | undefined;
  /** Bytes of the samples; undefined if they go to the end. */
  length?: number;
}

/** The head of a WAV, before its samples; undefined if it is incomplete or invalid. */
function readHead(bytes: Uint8Array): (Samples & { start: number }) | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let format: Omit<Samples, 'length'> | undefined;
  for (let at = 12; at + 8 <= bytes.length; ) {
    const name = String.fromCharCode(...bytes.subarray(at, at + 4));
    const size = view.getUint32(at + 4, true);
    const content = at + 8;
    if (name === 'data') {
      // A stream of unknown length has the maximum length, or 0.
      const isOpen = size === 0 || size >= 0x7fff_ffff;
      return format && { ...format, start: content, ...(isOpen ? {} : { length: size }) };
    }
    if (content + size > bytes.length) return undefined;
    if (name === 'fmt ' && size >= 16) format = readFormat(view, content, size);
    at = content + size + (size % 2);
  }
  return undefined;
}

const PCM = 1;
const FLOAT = 3;
const EXTENSIBLE = 0xfffe;

function readFormat(view: DataView, at: number, size: number): Omit<Samples, 'length'> | undefined {
  const tag = view.getUint16(at, true);
  // The first bytes of the GUID of an extensible format are the tag of the actual format.
  const kind = tag === EXTENSIBLE && size >= 26 ? view.getUint16(at + 24, true) : tag;
  const channels = view.getUint16(at + 2, true);
  const rate = view.getUint32(at + 4, true);
  const width = view.getUint16(at + 14, true);
  const read = READERS[`${kind} ${width}`];
  if (!read || channels < 1 || channels > 8) return undefined;
  const bytes = width / 8;
  if (channels === 1 && kind === PCM && width === 16) return { rate, bytes, toMono: undefined };
  const toMono = (samples: DataView, first: number): number => {
    let sum = 0;
    for (let channel = 0; channel < channels; channel++) sum += read(samples, first + channel * bytes);
    return Math.max(-32_768, Math.min(32_767, Math.round(sum / channels)));
  };
  return { rate, bytes: bytes * channels, toMono };
}

/** Samples in the range of 16 bits, by tag and width. */
const READERS: Readonly<Record<string, (view: DataView, at: number) => number>> = {
  [`${PCM} 8`]: (view, at) => (view.getUint8(at) - 128) * 256,
  [`${PCM} 16`]: (view, at) => view.getInt16(at, true),
  [`${PCM} 24`]: (view, at) => view.getInt16(at + 1, true),
  [`${PCM} 32`]: (view, at) => view.getInt16(at + 2, true),
  [`${FLOAT} 32`]: (view, at) => view.getFloat32(at, true) * 32_767,
};

/** Turns chunks of any size into mono samples at `rate`. */
function converter({ rate: from, bytes: size, toMono }: Samples, rate: number): (bytes: Uint8Array) => Uint8Array {
  if (from === rate && !toMono) return (bytes) => bytes;
  const resample = createResampler(from, rate);
  let held: Uint8Array = new Uint8Array(0);
  return (bytes) => {
    const all = held.length === 0 ? bytes : concatBytes(held, bytes);
    const whole = all.length - (all.length % size);
    held = all.slice(whole);
    return resample(toMono ? monoOf(all.subarray(0, whole), size, toMono) : all.subarray(0, whole));
  };
}

function monoOf(bytes: Uint8Array, size: number, toMono: (view: DataView, at: number) => number): Uint8Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const mono = new Uint8Array((bytes.length / size) * 2);
  const out = new DataView(mono.buffer);
  for (let at = 0; at < bytes.length; at += size) out.setInt16((at / size) * 2, toMono(view, at), true);
  return mono;
}
