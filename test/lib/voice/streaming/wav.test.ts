import { expect, it } from 'vitest';
import { wavFile, wavHeader } from '../../../../lib/voice/streaming/wav.ts';

it('05 §13: a WAV is mono, 16 bits, at the rate of its samples', () => {
  const file = Buffer.from(wavFile(new Uint8Array([1, 2, 3, 4]), 24_000));
  expect(file.toString('hex')).toBe(
    [
      '52494646', // RIFF
      '28000000', // 40 bytes follow
      '57415645666d7420', // WAVEfmt
      '10000000', // format: 16 bytes
      '0100', // PCM
      '0100', // mono
      'c05d0000', // 24000 samples a second
      '80bb0000', // 48000 bytes a second
      '0200', // bytes a sample
      '1000', // bits a sample
      '64617461', // data
      '04000000', // 4 bytes
      '01020304',
    ].join(''),
  );
});

it('the header of a growing file leaves its length open, and has the same size', () => {
  const open = Buffer.from(wavHeader(16_000));
  const whole = Buffer.from(wavHeader(16_000, 100));
  expect([open.readUInt32LE(4), open.readUInt32LE(40)]).toEqual([0xffff_ffff, 0xffff_ffff]);
  expect([whole.readUInt32LE(4), whole.readUInt32LE(40)]).toEqual([136, 100]);
  expect(open.length).toBe(whole.length);
  expect(open.subarray(8, 40).equals(whole.subarray(8, 40))).toBe(true);
});
