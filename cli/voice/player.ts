import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { createChildren } from '../../lib/host/node/children.ts';
import { wavHeader } from '../../lib/voice/streaming/wav.ts';
import { CommandError, printable } from '../output.ts';
import type { SpeechPart } from './speech.ts';

/** Programs that play raw samples from stdin, by preference. No shell is used. */
const PLAYERS: readonly (readonly [name: string, args: (rate: number) => string[]])[] = [
  ['aplay', (rate) => ['-q', '-t', 'raw', '-f', 'S16_LE', '-c', '1', '-r', String(rate), '-']],
  ['paplay', (rate) => ['--raw', '--format=s16le', '--channels=1', `--rate=${rate}`]],
  // Options for channels differ between versions, so it gets the samples as a WAV.
  ['ffplay', () => ['-nodisp', '-autoexit', '-loglevel', 'error', '-f', 'wav', '-i', 'pipe:0']],
  ['play', (rate) => ['-q', '-t', 'raw', '-e', 'signed', '-b', '16', '-c', '1', '-r', String(rate), '-']],
];
const WRITE_A_FILE = 'Write a file instead: --out speech.wav';
/** For commands that write no file. */
export const INSTALL_PLAYER = 'Install one, such as with: apt install alsa-utils';
const MAX_COMPLAINT = 300;

export interface Player {
  name: string;
  /** Queues samples. Audio that the player has not read yet stays in memory. */
  play(part: SpeechPart): void;
  /** Resolves when everything was played. Rejects if the player failed. */
  finish(): Promise<void>;
  /** Stops at once. Later audio starts again. */
  stop(): void;
}

/**
 * Finds the first player on `PATH`.
 * @throws CommandError with the advice `instead` if no player is installed.
 */
export async function findPlayer(env: Record<string, string | undefined>, instead = WRITE_A_FILE): Promise<Player> {
  const programs = createChildren(env);
  for (const [name, args] of PLAYERS) {
    const path = await programs.find(name);
    if (path !== null) return createPlayer(name, path, args, instead);
  }
  const names = PLAYERS.map(([name]) => name).join(', ');
  throw new CommandError(`no player was found: none of ${names} is installed`, instead);
}

function createPlayer(name: string, path: string, args: (rate: number) => string[], instead: string): Player {
  let child: ChildProcessByStdio<Writable, null, Readable> | undefined;
  let ended: Promise<void> = Promise.resolve();

  function begin(rate: number) {
    const own = spawn(path, args(rate), { stdio: ['pipe', 'ignore', 'pipe'] });
    let complaint = '';
    own.stderr.setEncoding('utf8').on('data', (text: string) => {
      complaint = (complaint + text).slice(-MAX_COMPLAINT);
    });
    // The player has exited; its status explains why.
    own.stdin.on('error', () => {});
    ended = new Promise((resolve, reject) => {
      const fail = (why: string) => reject(new CommandError(`${name} failed: ${printable(why)}`, instead));
      own.on('error', (error) => fail(error.message));
      own.on('close', (code, signal) => (code === 0 ? resolve() : fail(complaint || `exit ${code ?? signal}`)));
    });
    ended.catch(() => {});
    if (name === 'ffplay') own.stdin.write(wavHeader(rate));
    return own;
  }

  return {
    name,
    play({ pcm, sampleRate }) {
      child ??= begin(sampleRate);
      child.stdin.write(pcm);
    },
    finish() {
      child?.stdin.end();
      return ended;
    },
    stop() {
      child?.kill();
      child = undefined;
      ended = Promise.resolve();
    },
  };
}
