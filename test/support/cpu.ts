import { readdirSync, readFileSync } from 'node:fs';

/** Clock ticks per second in `/proc` (`USER_HZ`, the same on every Linux that Node runs on). */
const TICKS = 100;

/**
 * Seconds of processor time of this process and of all processes below it, with those that ended and were waited for.
 * Without `/proc`, of this process only.
 */
export function treeCpu(): number {
  const self = process.cpuUsage();
  let seconds = (self.user + self.system) / 1e6;
  const children = new Map<number, number[]>();
  const times = new Map<number, { own: number; ended: number }>();
  for (const pid of pids()) {
    const stat = readStat(pid);
    if (!stat) continue;
    times.set(pid, stat);
    children.set(stat.parent, [...(children.get(stat.parent) ?? []), pid]);
  }
  seconds += times.get(process.pid)?.ended ?? 0;
  const below = [...(children.get(process.pid) ?? [])];
  for (const pid of below) {
    const { own, ended } = times.get(pid) ?? { own: 0, ended: 0 };
    seconds += own + ended;
    below.push(...(children.get(pid) ?? []));
  }
  return seconds;
}

/**
 * Starts a watch: the milliseconds that have passed, without those in which one thread could have run and others did: that which
 * has waited longest of those of this process and of all below it. On a quiet machine, all that have passed.
 */
export function startWatch(): () => number {
  const [began, before] = [performance.now(), waits()];
  return () => {
    const waited = [...waits()].map(([thread, wait]) => wait - (before.get(thread) ?? 0));
    return performance.now() - began - Math.max(0, ...waited);
  };
}

/** Seconds of processor time of the processes below this one. */
export function childrenCpu(): number {
  const { user, system } = process.cpuUsage();
  return treeCpu() - (user + system) / 1e6;
}

/** Milliseconds that each thread has waited for a processor, by its id. */
function waits(): Map<string, number> {
  const parents = new Map(pids().map((pid) => [pid, readStat(pid)?.parent ?? 0]));
  const isBelow = (pid: number): boolean => pid === process.pid || (pid > 1 && isBelow(parents.get(pid) ?? 0));
  const found = new Map<string, number>();
  for (const pid of [...parents.keys()].filter(isBelow)) {
    for (const thread of attempt(() => readdirSync(`/proc/${pid}/task`)) ?? []) {
      const text = attempt(() => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'latin1'));
      if (text) found.set(thread, Number(text.split(' ')[1]) / 1e6);
    }
  }
  return found;
}

/** Undefined when the process ended meanwhile. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

function pids(): number[] {
  try {
    return readdirSync('/proc').map(Number).filter(Number.isInteger);
  } catch {
    return [];
  }
}

/** Undefined when the process ended meanwhile. */
function readStat(pid: number): { parent: number; own: number; ended: number } | undefined {
  try {
    // The second field is the program's name in parentheses, and may itself contain spaces and parentheses.
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number);
    const [parent = 0, user = 0, system = 0, endedUser = 0, endedSystem = 0] = [1, 11, 12, 13, 14].map(
      (at) => fields[at],
    );
    return { parent, own: (user + system) / TICKS, ended: (endedUser + endedSystem) / TICKS };
  } catch {
    return undefined;
  }
}
