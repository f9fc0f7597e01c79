import { readFile } from 'node:fs/promises';
import type { HostProcesses } from '../index.ts';
import { parseStat } from './proc-stat.ts';
import { endAll } from './process-end.ts';
import { sendSignal } from './signal.ts';

/** Largest process id of any system; beyond it `process.kill` throws for other reasons. */
const MAX_PID = 2 ** 31 - 1;

/** Processes of this machine. */
export function createProcesses(): HostProcesses {
  return {
    own: process.pid,
    // 0 and negative numbers address process groups.
    exists: (pid) => isPid(pid) && sendSignal(pid, 0),
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
