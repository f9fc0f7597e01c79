import { describe, expect, it } from 'vitest';
import { encodeMp3, isMp3Rate } from '../../../../lib/voice/basic/mp3.ts';
import { mp3Frames, sinePcm } from '../../../support/voice/audio.ts';

const never = new AbortController().signal;

describe('encodeMp3 (contract 05 §8, gemini)', () => {
  it.each([8000, 16_000, 24_000, 44_100, 48_000])('makes whole frames of %i Hz, as long as the audio', async (rate) => {
    expect(isMp3Rate(rate)).toBe(true);
    const mp3 = await encodeMp3([sinePcm(2, rate)], rate, never);
    const { frames, seconds, sampleRate, rest } = mp3Frames(mp3);
    expect({ sampleRate, rest }).toEqual({ sampleRate: rate, rest: 0 });
    expect(frames).toBeGreaterThan(10);
    // The format adds a delay of some frames.
    expect(seconds).toBeGreaterThanOrEqual(2);
    expect(seconds).toBeLessThan(2.3);
  });

  it('does not depend on how the bytes are cut, and drops half a sample', async () => {
    const pcm = sinePcm(0.5, 24_000);
    const whole = await encodeMp3([pcm], 24_000, never);
    const bytes = [...pcm, 7];
    const cut = Array.from({ length: Math.ceil(bytes.length / 7) }, (_, at) =>
      Uint8Array.from(bytes.slice(at * 7, at * 7 + 7)),
    );
    expect(await encodeMp3(cut, 24_000, never)).toEqual(whole);
  });

  it('gives way to the event loop', async () => {
    let turns = 0;
    const timer = setInterval(() => turns++, 1);
    // Compiles the encoder first: a machine that is slow for once must not decide.
    await encodeMp3([sinePcm(1, 24_000)], 24_000, never);
    const before = turns;
    const start = process.cpuUsage();
    await encodeMp3([sinePcm(20, 24_000)], 24_000, never);
    clearInterval(timer);
    const { user, system } = process.cpuUsage(start);
    // A turn at least every 50 ms of the CPU that it took.
    expect(turns - before).toBeGreaterThan((user + system) / 50_000);
  });

  it('stops when it is aborted', async () => {
    const abort = new AbortController();
    const encoding = encodeMp3([sinePcm(60, 24_000)], 24_000, abort.signal);
    setTimeout(() => abort.abort(new Error('hung up')), 5);
    await expect(encoding).rejects.toThrow('hung up');
  });
});
