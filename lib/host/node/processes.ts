import { readFile } from 'node:fs/promises';
import type { HostProcesses } from '../index.ts';

/** Largest process id of any system; beyond it `process.kill` throws for other reasons. */
const MAX_PID = 2 ** 31 - 1;
/** `starttime` is field 22 of proc(5) `stat`; the text after the command starts with field 3. */
const START_TIME = 22 - 3;

/** Processes of this machine. Sends no signal other than 0 (contract 07 §1.3). */
export function createProcesses(): HostProcesses {
  return {
    own: process.pid,
    exists(pid) {
      // 0 and negative numbers address process groups.
      if (!isPid(pid)) return false;
      try {
        process.kill(pid, 0);
        return true;
      } catch (error) {
        return (error as NodeJS.ErrnoException).code === 'EPERM';
      }
    },
    async facts(pid) {
      if (!isPid(pid)) return null;
      try {
        const [stat, line] = await Promise.all([
          readFile(`/proc/${pid}/stat`, 'utf8'),
          readFile(`/proc/${pid}/cmdline`, 'utf8'),
        ]);
        const parsed = parseStat(stat);
        return (
          parsed && { startTime: parsed.startTime, command: `${parsed.name} ${line.replaceAll('\0', ' ')}`.trim() }
        );
      } catch {
        return null;
      }
    },
  };
}

const isPid = (pid: number): boolean => Number.isInteger(pid) && pid > 0 && pid <= MAX_PID;

/** Command name and start time (clock ticks since boot) of a `/proc/<pid>/stat` line. The name may contain `)` and spaces. */
export function parseStat(line: string): { name: string; startTime: number } | null {
  const open = line.indexOf('(');
  const close = line.lastIndexOf(')');
  if (open < 0 || close < open) return null;
  const field = line
    .slice(close + 1)
    .trim()
    .split(/\s+/)[START_TIME];
  if (field === undefined || !/^\d+$/.test(field)) return null;
  return { name: line.slice(open + 1, close), startTime: Number(field) };
}
