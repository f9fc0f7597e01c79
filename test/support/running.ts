import { readdir, readFile } from 'node:fs/promises';
import { vi } from 'vitest';

/** Whether a process is running. An unreaped one is not. */
export async function isRunning(pid: number): Promise<boolean> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
  } catch {
    return false;
  }
}

/** Waits until a process has ended. */
export const untilGone = (pid: number): Promise<void> =>
  vi.waitFor(
    async () => {
      if (await isRunning(pid)) throw new Error(`process ${pid} still runs`);
    },
    { interval: 20 },
  );

/** Processes whose command line contains a text. */
export async function runningWith(text: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
  return pids.filter((_pid, at) => lines[at]?.includes(text)).map(Number);
}
