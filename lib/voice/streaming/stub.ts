import { nextTurn } from '../../kit/clock.ts';
import type { Adapter } from './adapter.ts';

const AMPLITUDE = 8000;
const CHUNKS = 8;
const HIGH = new Set(['urgent', 'energetic', 'playful']);
const LOW = new Set(['calm', 'warm', 'empathetic']);

const frequencyOf = (emotion: string): number => (HIGH.has(emotion) ? 660 : LOW.has(emotion) ? 330 : 440);

/** A sine whose length follows the text, for trying the whole path without a provider (contract 05 §13, `stub`). */
export const renderStub: Adapter = async function* ({ text, sampleRate, expression, signal }) {
  const frequency = frequencyOf(expression.emotion.toLowerCase());
  let frames = 0;
  for (const { from, to, pcm } of toneFor(text, sampleRate, frequency)) {
    // Unlike a provider, a tone never waits, so a few of them at once would block the event loop.
    await nextTurn();
    signal.throwIfAborted();
    frames = to;
    yield { pcm, sampleRate, label: `frames:${from}-${to}` };
  }
  return {
    provider: 'stub',
    model: 'local-tone',
    voice: 'sine',
    metadata: { sample_rate: sampleRate, duration_seconds: frames / sampleRate, frequency_hz: frequency },
  };
};

/** The tone for a text in eight or nine parts, samples `from` to `to` (exclusive), of 0.25 to 1.5 seconds in all. */
function* toneFor(
  text: string,
  sampleRate: number,
  frequency: number,
): Generator<{ from: number; to: number; pcm: Uint8Array }> {
  const characters = [...text.trim()].length;
  const seconds = Math.min(1.5, Math.max(0.25, characters / 120));
  const frames = Math.floor(sampleRate * seconds);
  const step = Math.max(1, Math.floor(frames / CHUNKS));
  for (let from = 0; from < frames; from += step) {
    const to = Math.min(frames, from + step);
    yield { from, to, pcm: sine(from, to, frequency / sampleRate) };
  }
}

/** Samples `from` to `to` (exclusive) of a tone; `pitch` in periods per sample. */
function sine(from: number, to: number, pitch: number): Uint8Array {
  const pcm = new Uint8Array((to - from) * 2);
  const view = new DataView(pcm.buffer);
  for (let frame = from; frame < to; frame++) {
    view.setInt16((frame - from) * 2, Math.round(AMPLITUDE * Math.sin(2 * Math.PI * pitch * frame)), true);
  }
  return pcm;
}
