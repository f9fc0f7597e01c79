import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeSamples } from '../../../../lib/voice/streaming/decode.ts';
import { wavFile } from '../../../../lib/voice/streaming/wav.ts';
import { sinePcm } from '../../../support/voice/audio.ts';

/** A WAV with a chunk before its samples and one after them. */
function wav(samples: Buffer, { tag = 1, channels = 1, width = 16, rate = 24_000, length = samples.length } = {}) {
  const format = Buffer.alloc(16);
  format.writeUInt16LE(tag, 0);
  format.writeUInt16LE(channels, 2);
  format.writeUInt32LE(rate, 4);
  format.writeUInt32LE((rate * channels * width) / 8, 8);
  format.writeUInt16LE((channels * width) / 8, 12);
  format.writeUInt16LE(width, 14);
  const chunk = (name: string, content: Buffer, size = content.length) => {
    const head = Buffer.from(`${name}    `);
    head.writeUInt32LE(size, 4);
    return Buffer.concat([head, content]);
  };
  const info = chunk('LIST', Buffer.from('INFOabc!'));
  const parts = [Buffer.from('WAVE'), chunk('fmt ', format), info, chunk('data', samples, length)];
  if (length === samples.length) parts.push(info);
  return chunk('RIFF', Buffer.concat(parts));
}

async function decoded(bytes: Uint8Array, { contentType = 'audio/wav', rate = 24_000, cut = bytes.length } = {}) {
  async function* body() {
    for (let at = 0; at < bytes.length; at += cut) yield bytes.subarray(at, at + cut);
  }
  const chunks: Uint8Array[] = [];
  for await (const chunk of decodeSamples(body(), { contentType, assumedRate: 24_000, rate, name: 'Local' }))
    chunks.push(chunk);
  const all = Buffer.concat(chunks);
  return Array.from({ length: all.length >> 1 }, (_, at) => all.readInt16LE(at * 2));
}

const int16 = (...samples: number[]): Buffer => Buffer.from(Int16Array.from(samples).buffer);

describe('samples of a WAV (contract 05 §18)', () => {
  const float = Buffer.from(Float32Array.from([0.5, -1, 2]).buffer);
  it.each([
    ['16 bits', wav(int16(1, -2, 3)), [1, -2, 3]],
    ['of a stream without an end', wav(int16(1, -2, 3), { length: 0xffff_ffff }), [1, -2, 3]],
    ['two channels', wav(int16(100, 200, -100, 100), { channels: 2 }), [150, 0]],
    ['8 bits', wav(Buffer.from([128, 255, 0]), { width: 8 }), [0, 32_512, -32_768]],
    ['24 bits', wav(Buffer.from([9, 1, 0, 9, 0xfe, 0xff]), { width: 24 }), [1, -2]],
    ['32 bits', wav(Buffer.from([0, 0, 7, 0]), { width: 32 }), [7]],
    ['floating point', wav(float, { tag: 3, width: 32 }), [16_384, -32_767, 32_767]],
  ])('%s', async (_, bytes, expected) => {
    for (const cut of [1, 7, bytes.length]) expect(await decoded(bytes, { cut })).toEqual(expected);
  });

  it('believes the bytes and not the label', async () => {
    expect(await decoded(wav(int16(1, 2)), { contentType: 'audio/mpeg' })).toEqual([1, 2]);
  });

  it('changes the rate, the same however it is cut', () =>
    fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 997 }),
        fc.constantFrom(8000, 16_000, 22_050, 48_000),
        async (cut, rate) => {
          const bytes = Buffer.from(wavFile(sinePcm(0.05, rate), rate));
          const samples = await decoded(bytes, { cut });
          expect(samples).toEqual(await decoded(bytes));
          expect(Math.abs(samples.length - 1200)).toBeLessThanOrEqual(2);
        },
      ),
      { numRuns: 30 },
    ));

  it.each([
    ['compressed', wav(int16(1), { tag: 0x55 })],
    ['cut in its head', wav(int16(1)).subarray(0, 30)],
    ['a head without an end', Buffer.concat([wav(int16()).subarray(0, 36), Buffer.alloc(100_000, 0x20)])],
  ])('%s: is an error', async (_, bytes) => {
    await expect(decoded(bytes)).rejects.toThrow('Local sent WAV instead of raw PCM, and it cannot be read');
  });
});

describe('raw samples', () => {
  it('have the rate of their label, else the one that was asked for', async () => {
    const pcm = int16(...Array.from({ length: 160 }, () => 5));
    expect(await decoded(pcm, { contentType: 'audio/L16; rate=16000; channels=1' })).toHaveLength(240);
    expect(await decoded(pcm, { contentType: 'application/octet-stream', cut: 3 })).toEqual(Array(160).fill(5));
  });

  it('of an impossible rate are an error', async () => {
    await expect(decoded(int16(1), { contentType: 'audio/pcm;rate=1000' })).rejects.toThrow('audio of 1000 Hz');
  });
});
