import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { createResampler } from '../../../../lib/voice/streaming/resample.ts';
import { pcmOf, samplesOf } from '../agent/provider/support.ts';

const rate = fc.integer({ min: 8000, max: 96_000 });
const sample = fc.integer({ min: -32_768, max: 32_767 });
/** Chunks of an utterance. */
const chunks = fc.array(fc.array(sample, { maxLength: 200 }), { minLength: 1, maxLength: 12 });

const resampled = (from: number, to: number, parts: readonly number[][]): number[] => {
  const resample = createResampler(from, to);
  return parts.flatMap((part) => samplesOf(resample(pcmOf(part))));
};

it('06 §9: makes n × to / from samples, within one in all and within two per chunk', () => {
  fc.assert(
    fc.property(rate, rate, chunks, (from, to, parts) => {
      const resample = createResampler(from, to);
      let [input, output] = [0, 0];
      for (const part of parts) {
        const made = resample(pcmOf(part)).length / 2;
        expect(Math.abs(made - (part.length * to) / from)).toBeLessThan(2);
        input += part.length;
        output += made;
      }
      expect(output).toBe(Math.ceil((input * to) / from));
    }),
  );
});

it('06 §9: however an utterance is cut, the samples are the same', () => {
  fc.assert(
    fc.property(rate, rate, chunks, (from, to, parts) => {
      expect(resampled(from, to, parts)).toEqual(resampled(from, to, [parts.flat()]));
    }),
  );
});

it('stays between the samples around it, so that a constant stays one and nothing overflows', () => {
  fc.assert(
    fc.property(rate, rate, fc.array(sample, { minLength: 1, maxLength: 300 }), (from, to, samples) => {
      const made = resampled(from, to, [samples]);
      expect(Math.min(...made)).toBeGreaterThanOrEqual(Math.min(...samples));
      expect(Math.max(...made)).toBeLessThanOrEqual(Math.max(...samples));
    }),
  );
});

it('06 §9: interpolates between samples', () => {
  expect(resampled(8000, 16_000, [[0, 100], [200]])).toEqual([0, 0, 0, 50, 100, 150]);
  expect(resampled(16_000, 8000, [[0, 100, 200, 300]])).toEqual([0, 100]);
});

it.each([
  [16_000, 24_000],
  [48_000, 24_000],
  [44_100, 24_000],
  [8000, 96_000],
])('a sine of 300 Hz from %i to %i Hz stays one', (from, to) => {
  const wave = (hertz: number, shift: number) =>
    Array.from({ length: hertz / 10 }, (_, at) =>
      Math.round(10_000 * Math.sin(2 * Math.PI * 300 * (at / hertz - shift))),
    );
  const chunked = Array.from({ length: 10 }, (_, at) =>
    wave(from, 0).slice((at * from) / 100, ((at + 1) * from) / 100),
  );
  const made = resampled(from, to, chunked);
  const ideal = wave(to, 1 / from);
  const worst = Math.max(...made.slice(to / 1000).map((value, at) => Math.abs(value - (ideal[at + to / 1000] ?? 0))));
  expect(worst).toBeLessThan(100);
});

it('equal rates change nothing', () => {
  const pcm = pcmOf([1, -2, 3]);
  expect(createResampler(24_000, 24_000)(pcm)).toEqual(pcm);
});

it('reads a view that begins at an odd address', () => {
  const bytes = new Uint8Array([9, ...pcmOf([500, 500])]);
  expect(samplesOf(createResampler(16_000, 24_000)(bytes.subarray(1)))).toEqual([500, 500, 500]);
});

it('06 §6.1: refuses half a sample, and rates outside 8000 to 96000', () => {
  expect(() => createResampler(16_000, 24_000)(new Uint8Array(3))).toThrow(/middle of a 16-bit sample/);
  expect(() => createResampler(24_000, 24_000)(new Uint8Array(1))).toThrow(/middle of a 16-bit sample/);
  for (const wrong of [7999, 96_001, 0, -16_000, 16_000.5, Number.NaN]) {
    expect(() => createResampler(wrong, 24_000)).toThrow(/from 8000 to 96000/);
    expect(() => createResampler(24_000, wrong)).toThrow(/from 8000 to 96000/);
  }
});
