import { expect, it } from 'vitest';
import { parseExpression } from '../../../../lib/voice/streaming/adapter.ts';
import { renderStub } from '../../../../lib/voice/streaming/stub.ts';
import { aRequest, rendered } from './support.ts';

it.each([
  ['', 0.25],
  ['  short  ', 0.25],
  ['x'.repeat(60), 0.5],
  [` ${'😀'.repeat(90)} `, 0.75],
  ['x'.repeat(5000), 1.5],
])('05 §13: the tone of %j lasts %d seconds', async (text, seconds) => {
  const { pcm, result } = await rendered(renderStub, aRequest({ text, sampleRate: 16_000 }));
  expect(pcm.length).toBe(16_000 * seconds * 2);
  expect(result).toEqual({
    provider: 'stub',
    model: 'local-tone',
    voice: 'sine',
    metadata: { sample_rate: 16_000, duration_seconds: seconds, frequency_hz: 440 },
  });
});

it('05 §13: the tone is a sine of amplitude 8000 without a seam', async () => {
  const { pcm } = await rendered(renderStub, aRequest({ text: 'x'.repeat(77) }));
  const frames = Math.floor((24_000 * 77) / 120);
  expect(pcm.length).toBe(frames * 2);
  for (let frame = 0; frame < frames; frame++) {
    const exact = 8000 * Math.sin((2 * Math.PI * 440 * frame) / 24_000);
    expect(Math.abs(pcm.readInt16LE(frame * 2) - exact)).toBeLessThanOrEqual(0.501);
  }
});

it.each([24_000, 16_000, 11_025, 96_000])(
  '05 §13: 8 or 9 chunks at %d Hz, labelled by their frames',
  async (sampleRate) => {
    const { chunks } = await rendered(renderStub, aRequest({ text: 'x'.repeat(101), sampleRate }));
    expect([8, 9]).toContain(chunks.length);
    let from = 0;
    for (const { pcm, label, sampleRate: rate } of chunks) {
      expect(label).toBe(`frames:${from}-${from + pcm.length / 2}`);
      expect(rate).toBe(sampleRate);
      expect(pcm.length).toBeLessThanOrEqual(64 * 1024);
      from += pcm.length / 2;
    }
    expect(from).toBe(Math.floor((sampleRate * 101) / 120));
  },
);

it.each([
  ['urgent', 660],
  ['Energetic', 660],
  ['playful', 660],
  ['calm', 330],
  ['warm', 330],
  ['empathetic', 330],
  ['sad', 440],
])('05 §13: %s is a tone of %d Hz', async (emotion, frequency) => {
  const { result } = await rendered(renderStub, aRequest({ expression: parseExpression({ emotion }) }));
  expect(result.metadata.frequency_hz).toBe(frequency);
});

it('ends with its signal', async () => {
  const end = new AbortController();
  const audio = renderStub(aRequest({ signal: end.signal }));
  await audio.next();
  end.abort(new Error('closed'));
  await expect(audio.next()).rejects.toThrow('closed');
});

it('lets the event loop turn between chunks', async () => {
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const { chunks } = await rendered(renderStub, aRequest({ text: 'x'.repeat(5000) }));
  isOver = true;
  expect(turns).toBeGreaterThanOrEqual(chunks.length);
});
