import { spawn } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { describeError } from '../../lib/errors.ts';
import { createChildren } from '../../lib/host/node/children.ts';
import { CommandError, printable } from '../output.ts';

/** Hertz and bytes of a chunk, the same as from phones (contract 06 §9). */
export const MICROPHONE_RATE = 16_000;
export const CHUNK = 6400;
/** Bytes of an utterance (contract 06 §6.1). */
const MAX_UTTERANCE = 32 * 1024 * 1024;
const MIN_RATE = 8000;
const MAX_RATE = 96_000;
const MAX_COMPLAINT = 300;
const ARGS = ['-q', '-t', 'raw', '-f', 'S16_LE', '-c', '1', '-r', String(MICROPHONE_RATE), '-'];
const TYPE_INSTEAD = 'Type instead, or send a recording: --in question.wav';

export interface Microphone {
  /** Rejects with a CommandError if the program ends by itself; resolves once every sample was passed on after `stop`. */
  ended: Promise<void>;
  /** Ends the recording. Returns `ended`. */
  stop(): Promise<void>;
}

/**
 * Records with `arecord` until stopped, and passes chunks on. Uses no shell.
 * @throws CommandError without `arecord`.
 */
export async function openMicrophone(
  env: Record<string, string | undefined>,
  onPcm: (pcm: Buffer) => void,
): Promise<Microphone> {
  const path = await createChildren(env).find('arecord');
  if (path === null) throw new CommandError('the program arecord was not found', TYPE_INSTEAD);
  const child = spawn(path, ARGS, { stdio: ['ignore', 'pipe', 'pipe'] });
  let isStopped = false;
  let complaint = '';
  let rest = Buffer.alloc(0);
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    complaint = (complaint + text).slice(-MAX_COMPLAINT);
  });
  child.stdout.on('data', (bytes: Buffer) => {
    rest = Buffer.concat([rest, bytes]);
    for (; rest.length >= CHUNK; rest = rest.subarray(CHUNK)) onPcm(rest.subarray(0, CHUNK));
  });
  const ended = new Promise<void>((resolve, reject) => {
    child.on('error', (error) => reject(new CommandError(`arecord failed: ${printable(error.message)}`, TYPE_INSTEAD)));
    child.on('close', (code) => {
      const whole = rest.subarray(0, rest.length - (rest.length % 2));
      if (whole.length > 0) onPcm(whole);
      if (isStopped) resolve();
      else reject(new CommandError(`arecord failed: ${printable(complaint) || `exit ${code}`}`, TYPE_INSTEAD));
    });
  });
  ended.catch(() => {});
  return {
    ended,
    stop() {
      isStopped = true;
      child.kill('SIGTERM');
      return ended;
    },
  };
}

export interface Recording {
  pcm: Buffer;
  /** Hertz. */
  rate: number;
}

/**
 * The samples of a WAV file with 16-bit mono PCM.
 * @throws CommandError for any other.
 */
export async function readRecording(path: string): Promise<Recording> {
  const name = printable(path);
  const facts = await stat(path).catch((error) => {
    throw new CommandError(`${name} cannot be read: ${describeError(error)}`, 'Give the path of a WAV file.');
  });
  if (facts.size > MAX_UTTERANCE) {
    throw new CommandError(`${name} has more than 32 MiB, the most that is one utterance`, 'Give a shorter recording.');
  }
  const recording = samplesOf(await readFile(path));
  if (typeof recording !== 'string') return recording;
  throw new CommandError(
    `${name} ${recording}`,
    'Convert it, such as with: sox in.mp3 -r 16000 -c 1 -b 16 question.wav',
  );
}

/** The samples of a WAV, or why it cannot be sent. */
export function samplesOf(file: Buffer): Recording | string {
  if (file.toString('latin1', 0, 4) !== 'RIFF' || file.toString('latin1', 8, 12) !== 'WAVE') return 'is no WAV file';
  let rate: number | undefined;
  for (let at = 12; at + 8 <= file.length; ) {
    const id = file.toString('latin1', at, at + 4);
    const size = file.readUInt32LE(at + 4);
    const begin = at + 8;
    if (id === 'fmt ' && begin + 16 <= file.length) {
      const [format, channels, bits] = [begin, begin + 2, begin + 14].map((place) => file.readUInt16LE(place));
      rate = file.readUInt32LE(begin + 4);
      // 0xfffe: the format is in an extension, with the same samples.
      if ((format !== 1 && format !== 0xfffe) || bits !== 16) return 'has no 16-bit PCM samples';
      if (channels !== 1) return `has ${channels} channels instead of one`;
      if (rate < MIN_RATE || rate > MAX_RATE) return `has ${rate} Hz instead of ${MIN_RATE} to ${MAX_RATE}`;
    } else if (id === 'data' && rate !== undefined) {
      // An incomplete file announces a length beyond its end.
      const pcm = file.subarray(begin, Math.min(begin + size, file.length));
      const whole = pcm.subarray(0, pcm.length - (pcm.length % 2));
      return whole.length > 0 ? { pcm: whole, rate } : 'has no samples';
    }
    at = begin + size + (size % 2);
  }
  return 'has no samples';
}
