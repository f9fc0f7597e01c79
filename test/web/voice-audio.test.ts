import fc from 'fast-check';
import { afterEach, expect, it, vi } from 'vitest';
import { startCapture } from '../../handlers/web/app/voice/capture.ts';
import { createDetector } from '../../handlers/web/app/voice/detector.ts';
import { startRecorder } from '../../handlers/web/app/voice/recorder.ts';
import { createResampler } from '../../handlers/web/app/voice/resample.ts';
import { createUplink } from '../../handlers/web/app/voice/uplink.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import { cough, joined, listen, silence, vowels } from '../support/voice/microphone.ts';

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

const names = (room: Parameters<typeof listen>[0]) => listen(room).map(({ change }) => change);

it('a request begins with speech, goes on in a pause of a second, and ends in silence', () => {
  const said = joined(vowels(140, 1), silence(1), vowels(140, 1));
  const [began, ended, ...rest] = listen({ said, from: 3, level: 0.3, seconds: 8 }).filter(
    ({ change }) => change !== 'noticed',
  );
  expect([began?.change, ended?.change, rest]).toEqual(['began', 'ended', []]);
  expect(began?.at).toBeLessThan(0.3);
  expect(ended?.at).toBeGreaterThan(4);
  // A noise of some time is no voice.
  expect(names({ said: cough(3), from: 3, seconds: 6 })).not.toContain('began');
});

it('the agent is quieter when somebody may be speaking, and interrupted when they are', () => {
  const agent = vowels(210, 8);
  const [noticed, began] = listen({ said: vowels(140, 2), from: 3, level: 0.5, agent, seconds: 6 });
  expect([noticed?.change, began?.change]).toEqual(['noticed', 'began']);
  expect(noticed?.at).toBeLessThan(0.2);
  expect(began?.at).toBeLessThan(0.8);
  expect(names({ agent, seconds: 20 })).not.toContain('began');
  // A loudspeaker that the browser does not keep out of the microphone: loud until the page makes it quieter.
  expect(names({ agent, echo: -10, seconds: 20 })).not.toContain('began');
});

it('beside a machine that hums, a request still ends, and the hum does not begin the next one', () => {
  const hum = silence(20).map((_, at) => 0.04 * Math.sin((2 * Math.PI * 300 * at) / 16_000));
  expect(names({ said: hum, seconds: 20 }).filter((change) => change !== 'noticed')).toEqual(['began', 'ended']);
});

it('at the rate of a microphone of a telephone headset, speech begins and ends too', () => {
  const detector = createDetector(8000);
  const said = joined(silence(2), vowels(140, 2), silence(3)).filter((_, at) => at % 2 === 0);
  const changes: string[] = [];
  for (let at = 0; at + 320 <= said.length; at += 320) {
    const frame = Int16Array.from(said.subarray(at, at + 320), (sample) => sample * 32_767);
    const change = detector.hear(frame, null);
    if (change !== null && change !== 'noticed') changes.push(change);
  }
  expect(changes).toEqual(['began', 'ended']);
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

afterEach(() => vi.unstubAllGlobals());

it.each([
  ['a recording', startRecorder],
  ['a live conversation', () => startCapture({ hear: () => {}, lost: () => {} })],
])('frees the microphone when the browser has no sound for %s', async (_, start) => {
  const stop = vi.fn();
  vi.stubGlobal('navigator', { mediaDevices: { getUserMedia: async () => ({ getTracks: () => [{ stop }] }) } });
  const AudioContext = vi.fn(() => {
    throw new Error('too many contexts');
  });
  vi.stubGlobal('AudioContext', AudioContext);
  await expect(start()).rejects.toThrow();
  expect(stop).toHaveBeenCalledOnce();
});
