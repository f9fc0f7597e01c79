import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { wavFile, wavHeader } from '../../../../lib/voice/streaming/wav.ts';
import { temporaryDirectory } from '../../../support/temp.ts';
import { canSpeak, heard, spoken } from '../../../support/voice/speech.ts';
import { aRequest, rendered, startAdapters } from './support.ts';

const SENTENCE = 'The relay carries every sample of this sentence exactly once.';

it.runIf(canSpeak()).each([
  ['openai_tts', 24_000],
  ['elevenlabs_tts', 44_100],
  ['xai_tts', 16_000],
])('real speech through %s is a WAV at %d Hz that sox reads, sample by sample', async (id, rate) => {
  const speech = spoken(SENTENCE, rate);
  expect(speech.length).toBeGreaterThan(rate * 2);
  const { provider, adapter } = await startAdapters();
  provider.onCall(async (call) => {
    const body = call.json();
    expect(body.input ?? body.text).toBe(SENTENCE);
    await call.audio(speech, { size: 1777 });
  });
  const { pcm, chunks } = await rendered(adapter(id), aRequest({ text: SENTENCE, model: 'tts-1', sampleRate: rate }));
  expect(pcm.equals(speech)).toBe(true);
  expect(new Set(chunks.map(({ sampleRate }) => sampleRate))).toEqual(new Set([rate]));

  const folder = await temporaryDirectory();
  const [whole, growing] = [join(folder, 'whole.wav'), join(folder, 'growing.wav')];
  await writeFile(whole, wavFile(pcm, rate));
  // As left behind by a relay that was killed in the middle of a render.
  await writeFile(growing, Buffer.concat([wavHeader(rate), pcm]));
  expect(await heard(whole)).toEqual({ rate, channels: 1, bits: 16, samples: speech.length / 2, pcm: speech });
  expect((await heard(growing)).pcm.equals(speech)).toBe(true);
});
