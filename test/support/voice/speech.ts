import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '../temp.ts';
import { hasProgram } from '../terminal.ts';

const missing = ['espeak-ng', 'sox', 'soxi'].filter((program) => !hasProgram(program));

/** Whether this machine can speak, and judge audio; says on stderr what it lacks. */
export function canSpeak(): boolean {
  if (missing.length > 0) process.stderr.write(`SKIPPED: ${missing.join(' and ')} missing: no real speech is sent\n`);
  return missing.length === 0;
}

/** A sentence as raw 16-bit mono PCM, spoken by espeak-ng and resampled by sox. */
export async function spoken(sentence: string, rate: number): Promise<Buffer> {
  const folder = await temporaryDirectory();
  const [wav, raw] = [join(folder, 'speech.wav'), join(folder, 'speech.raw')];
  execFileSync('espeak-ng', ['-w', wav, sentence]);
  execFileSync('sox', [wav, '-r', String(rate), '-b', '16', '-e', 'signed', '-c', '1', raw]);
  return readFile(raw);
}

/** A WAV as sox reads it: rate, channels, bits, samples, and the raw samples. */
export async function heard(wav: string) {
  const raw = join(await temporaryDirectory(), 'heard.raw');
  execFileSync('sox', [wav, raw], { stdio: 'ignore' });
  const [rate, channels, bits, samples] = ['-r', '-c', '-b', '-s'].map((flag) =>
    Number(execFileSync('soxi', [flag, wav], { stdio: ['ignore', 'pipe', 'ignore'] })),
  );
  return { rate, channels, bits, samples, pcm: await readFile(raw) };
}
