import { readFile } from 'node:fs/promises';
import type { HostProcesses } from '../index.ts';
import { parseStat } from './proc-stat.ts';
import { endAll } from './process-end.ts';

/** Largest process id of any system; beyond it `process.kill` throws for other reasons. */
const MAX_PID = 2 ** 31 - 1;

/** Processes of this machine. */
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
    endAll,
  };
}

const isPid = (pid: number): boolean => Number.isInteger(pid) && pid > 0 && pid <= MAX_PID;
