import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createDetector } from '../../handlers/web/app/voice/detector.ts';
import { createResampler } from '../../handlers/web/app/voice/resample.ts';
import { createUplink } from '../../handlers/web/app/voice/uplink.ts';
import type { JsonObject } from '../../lib/kit/json.ts';

const tone = (hertz: number, rate: number, seconds = 0.5): Float32Array =>
  Float32Array.from({ length: rate * seconds }, (_, at) => Math.sin((2 * Math.PI * hertz * at) / rate));

/** Root mean square of the middle of a sound, without its edges. */
const strengthOf = (samples: Float32Array): number => {
  const middle = samples.slice(samples.length / 4, (samples.length * 3) / 4);
  return Math.sqrt(middle.reduce((sum, sample) => sum + sample * sample, 0) / middle.length);
};

it.each([48_000, 44_100, 96_000, 16_000])('06 §9: speech of %i hertz becomes 16,000, in tune', (rate) => {
  const resampled = createResampler(rate, 16_000)(tone(440, rate));
  expect(Math.abs(resampled.length - 8000)).toBeLessThan(20);
  expect(strengthOf(resampled)).toBeCloseTo(Math.SQRT1_2, 2);
  let crossings = 0;
  for (let at = 1; at < resampled.length; at++) {
    if ((resampled[at - 1] ?? 0) < 0 !== (resampled[at] ?? 0) < 0) crossings++;
  }
  expect(Math.abs(crossings - 440)).toBeLessThan(3);
});

it('what 16,000 hertz cannot carry is filtered out, as it would be heard as another tone', () => {
  expect(strengthOf(createResampler(48_000, 16_000)(tone(5000, 48_000)))).toBeGreaterThan(0.65);
  expect(strengthOf(createResampler(48_000, 16_000)(tone(11_000, 48_000)))).toBeLessThan(0.01);
});

it('however speech is cut, the samples are the same', () => {
  const whole = tone(700, 44_100, 0.1);
  const expected = createResampler(44_100, 16_000)(whole);
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 700 }), { maxLength: 40 }), (sizes) => {
      const resample = createResampler(44_100, 16_000);
      const parts: number[] = [];
      let at = 0;
      for (const size of [...sizes, whole.length]) {
        parts.push(...resample(whole.subarray(at, at + size)));
        at = Math.min(whole.length, at + size);
      }
      expect(parts.length).toBe(expected.length);
      expect(Math.max(...parts.map((sample, index) => Math.abs(sample - (expected[index] ?? 9))))).toBeLessThan(1e-3);
    }),
    { numRuns: 30 },
  );
});

const FRAMES_PER_SECOND = 50;

it('an utterance begins with speech, goes on in a pause, and ends in silence', () => {
  const detector = createDetector();
  const hear = (seconds: number, loudness: number, isAgentHeard = false) =>
    Array.from({ length: seconds * FRAMES_PER_SECOND }, () => detector.hear(loudness, isAgentHeard)).filter(Boolean);
  expect(hear(5, 0.003)).toEqual([]);
  // A click.
  expect(hear(0.06, 0.3)).toEqual([]);
  expect(hear(1, 0.003)).toEqual([]);
  expect(hear(1, 0.1)).toEqual(['began']);
  expect(hear(0.5, 0.003)).toEqual([]);
  expect(hear(1, 0.1)).toEqual([]);
  expect(hear(1.5, 0.003)).toEqual(['ended']);
  // What the loudspeaker leaves of the agent's own voice interrupts nobody, a person does.
  expect(hear(3, 0.014, true)).toEqual([]);
  expect(hear(1, 0.2, true)).toEqual(['began']);
});

it('beside a machine that hums, an utterance still ends, and the hum does not begin the next one', () => {
  const detector = createDetector();
  const heard = Array.from({ length: 300 * FRAMES_PER_SECOND }, () => detector.hear(0.03, false)).filter(Boolean);
  expect(heard).toEqual(['began', 'ended']);
});

/** An uplink, and what it sends. */
function startUplink() {
  const sent: JsonObject[] = [];
  let lost = 0;
  const uplink = createUplink({ send: (message) => sent.push(message), onLost: () => lost++ });
  /** Speech of a number of chunks. */
  const say = (chunks: number) => uplink.push(new Int16Array(chunks * 3200), 16_000);
  const ids = () => sent.map(({ type, chunk_id }) => (type === 'input_audio.append' ? chunk_id : type));
  return { uplink, sent, say, ids, lost: () => lost };
}

it('06 §4: speech is sent in chunks of 6,400 bytes, no more ahead than the relay acknowledges', () => {
  const { uplink, sent, say, ids } = startUplink();
  uplink.connect();
  say(20);
  expect(sent[0]).toMatchObject({ type: 'input_audio.append', sample_rate: 16_000, chunk_id: 1 });
  expect(atob(String(sent[0]?.audio_base64)).length).toBe(6400);
  expect(ids()).toEqual(Array.from({ length: 15 }, (_, at) => at + 1));
  uplink.acknowledge(3);
  expect(ids().slice(15)).toEqual([16, 17, 18]);
  uplink.push(new Int16Array(100), 16_000);
  uplink.commit(16_000);
  uplink.acknowledge(18);
  expect(ids().slice(18)).toEqual([19, 20, 21, 'input_audio.commit']);
  expect(atob(String(sent.find(({ chunk_id }) => chunk_id === 21)?.audio_base64)).length).toBe(200);
});

it('06 §4.1: over the next connection it sends what was not acknowledged, and the end of the utterance', () => {
  const { uplink, sent, say, ids } = startUplink();
  uplink.connect();
  say(3);
  uplink.commit(16_000);
  uplink.acknowledge(2);
  uplink.disconnect();
  say(1);
  sent.length = 0;
  uplink.connect();
  expect(ids()).toEqual([3, 'input_audio.commit', 4]);
  uplink.acknowledge(4);
  uplink.heard();
  uplink.disconnect();
  sent.length = 0;
  uplink.connect();
  expect(ids()).toEqual([]);
});

it('without a connection it keeps twelve seconds, drops the oldest and says so', () => {
  const { uplink, say, ids, lost } = startUplink();
  say(60);
  expect(lost()).toBe(0);
  say(2);
  expect(lost()).toBe(2);
  uplink.connect();
  expect(ids()[0]).toBe(3);
});

it('what is dropped is not sent, and the relay forgets what it has of it', () => {
  const { uplink, sent, say, ids } = startUplink();
  uplink.connect();
  say(1);
  uplink.drop();
  expect(ids()).toEqual([1, 'input_audio.clear']);
  say(1);
  uplink.disconnect();
  uplink.drop();
  sent.length = 0;
  uplink.connect();
  expect(ids()).toEqual(['input_audio.clear']);
});
