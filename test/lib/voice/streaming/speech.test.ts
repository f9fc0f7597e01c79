import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { wavFile, wavHeader } from '../../../../lib/voice/streaming/wav.ts';
import { temporaryDirectory } from '../../../support/temp.ts';
import { hasProgram } from '../../../support/terminal.ts';
import { aRequest, rendered, startAdapters } from './support.ts';

const PROGRAMS = ['espeak-ng', 'sox', 'soxi'];
const missing = PROGRAMS.filter((program) => !hasProgram(program));
if (missing.length > 0) process.stderr.write(`SKIPPED: ${missing.join(' and ')} missing: no real speech is streamed\n`);

const SENTENCE = 'The relay carries every sample of this sentence exactly once.';

/** The sentence as raw PCM, spoken by espeak-ng and resampled by sox. */
async function spoken(rate: number): Promise<Buffer> {
  const folder = await temporaryDirectory();
  const [wav, raw] = [join(folder, 'speech.wav'), join(folder, 'speech.raw')];
  execFileSync('espeak-ng', ['-w', wav, SENTENCE]);
  execFileSync('sox', [wav, '-r', String(rate), '-b', '16', '-e', 'signed', '-c', '1', raw]);
  return readFile(raw);
}

it.skipIf(missing.length > 0).each([
  ['openai_tts', 24_000],
  ['elevenlabs_tts', 44_100],
  ['xai_tts', 16_000],
])('real speech through %s is a WAV at %d Hz that sox reads, sample by sample', async (id, rate) => {
  const speech = await spoken(rate);
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
  const [whole, growing, decoded] = ['whole.wav', 'growing.wav', 'decoded.raw'].map((name) => join(folder, name));
  await writeFile(whole as string, wavFile(pcm, rate));
  // As left behind by a relay that was killed in the middle of a render.
  await writeFile(growing as string, Buffer.concat([wavHeader(rate), pcm]));
  for (const file of [whole, growing] as string[]) {
    execFileSync('sox', [file, decoded as string], { stdio: 'ignore' });
    expect((await readFile(decoded as string)).equals(speech)).toBe(true);
  }
  const facts = ['-r', '-c', '-b', '-s'].map((flag) => Number(execFileSync('soxi', [flag, whole as string])));
  expect(facts).toEqual([rate, 1, 16, speech.length / 2]);
});
