import { RelayError } from '../../errors.ts';
import { MAX_RATE, MIN_RATE } from '../limits.ts';

/** Resamples the chunks of one utterance in order. */
export type Resampler = (pcm: Uint8Array) => Uint8Array;

/**
 * Resamples signed 16-bit little-endian mono from one rate to another (hertz), linearly and across chunks, so that the
 * result does not depend on the chunking. One input sample late. After `n` samples it has returned `n * to / from`, rounded
 * up (contract 06 §9).
 * @throws RelayError `invalid` for a rate outside 8000 to 96000, and for a chunk with half a sample.
 */
export function createResampler(from: number, to: number): Resampler {
  checkRate(from);
  checkRate(to);
  /** The last sample of the former chunk; the very first sample stands for the one before it. */
  let last: number | undefined;
  /** Position of the next sample after `last`, in units of 1/`to` of an input sample. */
  let position = 0;

  return (pcm) => {
    if (pcm.length % 2 !== 0) throw new RelayError('invalid', 'the audio ends in the middle of a 16-bit sample');
    if (from === to || pcm.length === 0) return pcm;
    const input = new DataView(pcm.buffer, pcm.byteOffset, pcm.byteLength);
    const length = pcm.length / 2;
    let previous = last ?? input.getInt16(0, true);
    const count = Math.max(0, Math.ceil((length * to - position) / from));
    const resampled = new Uint8Array(count * 2);
    const output = new DataView(resampled.buffer);
    let at = 0;
    for (let index = 0; index < count; index++) {
      for (; position >= (at + 1) * to; at++) previous = input.getInt16(at * 2, true);
      const next = input.getInt16(at * 2, true);
      const part = (position - at * to) / to;
      output.setInt16(index * 2, Math.round(previous + (next - previous) * part), true);
      position += from;
    }
    position -= length * to;
    last = input.getInt16(pcm.length - 2, true);
    return resampled;
  };
}

function checkRate(rate: number): void {
  if (Number.isInteger(rate) && rate >= MIN_RATE && rate <= MAX_RATE) return;
  throw new RelayError('invalid', `the sample rate must be an integer from ${MIN_RATE} to ${MAX_RATE}`);
}
