import { readFileSync } from 'node:fs';
import { attempt } from '../../kit/attempt.ts';

/** Fields of proc(5) `stat`; the text after the command starts with field 3. */
const STATE = 3 - 3;
const PARENT = 4 - 3;
const SESSION = 6 - 3;
const FOREGROUND = 8 - 3;
const THREADS = 20 - 3;
const START_TIME = 22 - 3;

export interface Stat {
  name: string;
  state: string;
  parent: number;
  session: number;
  /** The group that reads its terminal; -1 without one. */
  foreground: number;
  threads: number;
  /** Clock ticks since boot. */
  startTime: number;
}

/** Fields of a `/proc/<pid>/stat` line. The name may contain `)` and spaces. */
export function parseStat(line: string): Stat | null {
  const open = line.indexOf('(');
  const close = line.lastIndexOf(')');
  if (open < 0 || close < open) return null;
  const fields = line
    .slice(close + 1)
    .trim()
    .split(/\s+/);
  const wanted = [STATE, PARENT, SESSION, FOREGROUND, THREADS, START_TIME];
  const [state, parent, session, foreground, threads, startTime] = wanted.map((at) => fields[at] ?? '');
  if (!/^\d+$/.test(startTime as string)) return null;
  return {
    name: line.slice(open + 1, close),
    state: state as string,
    parent: Number(parent),
    session: Number(session),
    foreground: Number(foreground),
    threads: Number(threads),
    startTime: Number(startTime),
  };
}

/** The fields of a process, read synchronously; null if there is none, or if it cannot be read. */
export const readStat = (pid: number): Stat | null =>
  parseStat(attempt(() => readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? '');

/**
 * True for a process that only waits for its parent to notice its end, which PID 1 of a container may never do. Until the
 * last of its threads has ended, they hold its files and ports.
 */
export const hasEnded = ({ state, threads }: Stat): boolean => (state === 'Z' || state === 'X') && threads <= 1;
