import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '../temp.ts';
import { hasProgram } from '../terminal.ts';

const missing = ['espeak-ng', 'sox', 'soxi'].filter((program) => !hasProgram(program));

/** Whether this machine can speak, and judge audio; says on stderr what it lacks. @throws Error where tests must be complete */
export function canSpeak(): boolean {
  if (missing.length === 0) return true;
  const words = `${missing.join(' and ')} missing: no real speech is sent`;
  if (process.env.CI) throw new Error(words);
  process.stderr.write(`SKIPPED: ${words}\n`);
  return false;
}

interface Speaker {
  /** Voice of espeak-ng, such as `de+f3`. */
  voice?: string;
  /** Words a minute. */
  speed?: number;
  /** 0 to 99. */
  pitch?: number;
}

/** A sentence as raw 16-bit mono PCM, spoken by espeak-ng and resampled by sox. */
export function spoken(
  sentence: string,
  rate: number,
  { voice = 'en', speed = 175, pitch = 50 }: Speaker = {},
): Buffer {
  const options = { maxBuffer: 64 * 1024 * 1024, stdio: ['pipe', 'pipe', 'ignore'] as ('pipe' | 'ignore')[] };
  const about = ['-v', voice, '-s', String(speed), '-p', String(pitch)];
  const wav = execFileSync('espeak-ng', [...about, '--stdout', sentence], options);
  const target = ['-t', 'raw', '-r', String(rate), '-b', '16', '-e', 'signed', '-c', '1', '-'];
  // Some voices are as loud as a sample can be, and a little louder after the change of rate.
  return execFileSync('sox', ['-G', '-t', 'wav', '--ignore-length', '-', ...target], { ...options, input: wav });
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
