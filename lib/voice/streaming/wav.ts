import { concatBytes } from '../../kit/bytes.ts';

const WAV_HEADER_BYTES = 44;
/** The length of a stream whose end is not known yet. */
const UNKNOWN = 0xffff_ffff;

const ascii = (view: DataView, at: number, text: string) => {
  for (let index = 0; index < text.length; index++) view.setUint8(at + index, text.charCodeAt(index));
};

/**
 * Header of a mono 16-bit WAV with `bytes` of samples. A growing file starts with a header without `bytes`, which players
 * read to the end of the file, and the complete header replaces it at the end.
 */
export function wavHeader(sampleRate: number, bytes?: number): Uint8Array {
  const header = new Uint8Array(WAV_HEADER_BYTES);
  const view = new DataView(header.buffer);
  ascii(view, 0, 'RIFF');
  view.setUint32(4, bytes === undefined ? UNKNOWN : bytes + WAV_HEADER_BYTES - 8, true);
  ascii(view, 8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, sampleRate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  ascii(view, 36, 'data');
  view.setUint32(40, bytes ?? UNKNOWN, true);
  return header;
}

/** A whole WAV file of 16-bit little-endian mono samples. */
export const wavFile = (pcm: Uint8Array, sampleRate: number): Uint8Array =>
  concatBytes(wavHeader(sampleRate, pcm.length), pcm);
