import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { errnoOf, isUnreadable } from '../errors.ts';
import type { ProcessOrigin } from '../index.ts';
import { hasEnded, parseStat, type Stat } from './proc-stat.ts';
import { sendSignal } from './signal.ts';

/** Milliseconds that processes get to exit after SIGTERM, and after each SIGKILL. */
const TERM_WAIT = 1_000;
const KILL_WAIT = 200;
/** Rounds of SIGKILL, for processes that start during a round. */
const KILL_ROUNDS = 4;
const POLL = 20;
/** Milliseconds for which a failed read of `/proc` is retried. */
const LOOK_WAIT = 500;

/** Start times by process id, which distinguish a process from a later one with the same id. */
type Found = Map<number, number>;

/** `HostProcesses.endAll`. */
export async function endAll(origin: ProcessOrigin): Promise<{ ended: number; left: number }> {
  try {
    return await endFound(origin);
  } catch {
    // Their descendants are unknown, and left running.
    for (const leader of origin.leaders) for (const signal of [...SIGNALS, ...KILL]) sendSignal(-leader, signal);
    return { ended: 0, left: Math.max(1, origin.leaders.length) };
  }
}

async function endFound(origin: ProcessOrigin): Promise<{ ended: number; left: number }> {
  const all: Found = new Map();
  const sessions = new Set(origin.leaders);
  let alive: Found = new Map();
  for (let round = 0; round <= KILL_ROUNDS; round++) {
    alive = await find(origin, { known: all, sessions });
    for (const [pid, startTime] of alive) all.set(pid, startTime);
    if (alive.size === 0) break;
    for (const signal of round === 0 ? SIGNALS : KILL) for (const pid of alive.keys()) sendSignal(pid, signal);
    await gone(alive, round === 0 ? TERM_WAIT : KILL_WAIT);
  }
  const left = alive.size === 0 ? 0 : (await stillAlive(alive)).size;
  return { ended: all.size - left, left };
}

/** A stopped process handles signals once it is continued. */
const SIGNALS = ['SIGHUP', 'SIGTERM', 'SIGCONT'] as const;
const KILL = ['SIGKILL'] as const;

/** The living processes of this origin. Adds their sessions to `sessions`. */
async function find(
  { leaders, marks }: ProcessOrigin,
  { known, sessions }: { known: Found; sessions: Set<number> },
): Promise<Found> {
  const table = await processTable();
  const ownSession = table.get(process.pid)?.session;
  const marked = new Set(await withMark([...table.keys()], marks));
  const found: Found = new Map();
  const others: [number, Stat][] = [];
  const take = (pid: number, stat: Stat) => {
    found.set(pid, stat.startTime);
    if (stat.session !== ownSession) sessions.add(stat.session);
  };
  for (const [pid, stat] of table) {
    // The relay itself may have been started in such a shell. It is spared, and so are its children.
    if (pid === process.pid) continue;
    if (leaders.includes(pid) || known.get(pid) === stat.startTime) take(pid, stat);
    else if (stat.parent === process.pid) continue;
    else if (marked.has(pid)) take(pid, stat);
    else others.push([pid, stat]);
  }
  for (let size = -1; size !== found.size; ) {
    size = found.size;
    for (const [pid, stat] of others) {
      if (!found.has(pid) && (sessions.has(stat.session) || found.has(stat.parent))) take(pid, stat);
    }
  }
  return found;
}

/** Every process except kernel threads and zombies. */
async function processTable(): Promise<Map<number, Stat>> {
  const table = new Map<number, Stat>();
  const names = (await retrying(() => readdir('/proc'))) ?? [];
  const pids = names.filter((name) => /^\d+$/.test(name)).map(Number);
  await Promise.all(
    pids.map(async (pid) => {
      const stat = await statOf(pid);
      if (stat && !hasEnded(stat) && stat.session > 0) table.set(pid, stat);
    }),
  );
  return table;
}

const statOf = async (pid: number): Promise<Stat | null> =>
  parseStat((await retrying(() => readFile(`/proc/${pid}/stat`, 'utf8'))) ?? '');

/**
 * Null for a process that is gone, or whose files this user may not read. Retries a shortage of descriptors for half a
 * second, then @throws, since there may be a process to end.
 */
async function retrying<T>(read: () => Promise<T>): Promise<T | null> {
  for (const end = performance.now() + LOOK_WAIT; ; ) {
    try {
      return await read();
    } catch (error) {
      if (isUnreadable(error) || errnoOf(error) === 'ESRCH') return null;
      if (performance.now() >= end) throw error;
    }
    await sleep(POLL);
  }
}

/** The processes that carry one of the marks. The environment of another user's process cannot be read. */
async function withMark(pids: number[], marks: readonly string[]): Promise<number[]> {
  if (marks.length === 0) return [];
  const hits = await Promise.all(
    pids.map(async (pid) => {
      const environment = (await retrying(() => readFile(`/proc/${pid}/environ`, 'utf8'))) ?? '';
      const variables = new Set(environment.split('\0'));
      return marks.some((mark) => variables.has(mark)) ? [pid] : [];
    }),
  );
  return hits.flat();
}

/** Waits until all are gone, for at most `wait` milliseconds. */
async function gone(processes: Found, wait: number): Promise<void> {
  for (const end = performance.now() + wait; performance.now() < end; ) {
    if ((await stillAlive(processes)).size === 0) return;
    await sleep(POLL);
  }
}

async function stillAlive(processes: Found): Promise<Found> {
  const checked = await Promise.all(
    [...processes].map(async ([pid, startTime]) => {
      const stat = await statOf(pid);
      return stat?.startTime === startTime && !hasEnded(stat);
    }),
  );
  return new Map([...processes].filter((_, at) => checked[at]));
}
