import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, readlinkSync, realpathSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { attempt } from '../../kit/attempt.ts';
import { listOf, readAs } from '../../kit/entries.ts';
import { parseJson } from '../../kit/json.ts';
import { createFiles } from './files.ts';
import { hasEnded, readStat } from './proc-stat.ts';
import { sendSignal } from './signal.ts';

const Build = v.object({
  /** Hash of its sources. */
  id: v.string(),
  /** The commit that it was built from; null outside a repository. */
  commit: v.fallback(v.nullable(v.string()), null),
  /** Epoch seconds. */
  built_at: v.number(),
});
export type RelayBuild = v.InferOutput<typeof Build>;

const positive = v.pipe(v.number(), v.integer(), v.minValue(1));
const text = v.fallback(v.string(), '');

/** The record of a running relay, written beside its state (contract 11 §1). */
const RelayLock = v.object({
  pid: positive,
  /** The address that it listens on, such as `0.0.0.0`. */
  host: v.string(),
  port: v.pipe(positive, v.maxValue(65_535)),
  tls: v.fallback(v.boolean(), false),
  version: text,
  /** The build that it runs; null if it runs from the sources. */
  build: v.fallback(v.nullable(Build), null),
  /** Null for a relay that keeps its state in memory. */
  state_file: v.fallback(v.nullable(v.string()), null),
  agent_home: text,
  /** The flags that it was started with, for its next start. Contains no credentials. */
  args: v.fallback(listOf(v.string()), []),
});
export type RelayLock = v.InferOutput<typeof RelayLock>;

const MAX_LOCK = 4096;
/** Maximum relays of one user that are listed. */
const MAX_RELAYS = 256;
const KERNEL_LOCKS = '/proc/locks';
const RECORD = /^[0-9a-f]{16}\.json$/;

const lockPath = (stateFile: string): string => `${stateFile}.lock`;
const folderOf = (relayHome: string): string => join(relayHome, 'relays');

/** The process that holds a lock on a state database, from the kernel's list of locks (Linux). */
export function lockHolder(stateFile: string): number | undefined {
  try {
    const inode = String(statSync(stateFile, { bigint: true }).ino);
    // `1: POSIX  ADVISORY  WRITE 4711 fe:00:2146513 1073741824 1073742335`
    for (const line of readFileSync(KERNEL_LOCKS, 'utf8').split('\n')) {
      const [, pid, locked] = /\sWRITE\s+(\d+)\s+\w+:\w+:(\d+)\s/.exec(line) ?? [];
      if (pid !== undefined && locked === inode && mayHaveOpen(pid, stateFile)) return Number(pid);
    }
  } catch {
    // This system has no such list.
  }
  return undefined;
}

/** True if a process has a file open, or hides its files. Inode numbers are unique within one file system only. */
function mayHaveOpen(pid: string, path: string): boolean {
  try {
    const real = realpathSync(path);
    const files = readdirSync(`/proc/${pid}/fd`);
    // One may have closed meanwhile.
    return files.some((file) => attempt(() => readlinkSync(`/proc/${pid}/fd/${file}`)) === real);
  } catch {
    return true;
  }
}

/**
 * The record of the relay on this state; null if none runs. The record of a killed relay is ignored, because the
 * process that it names has to hold the database.
 */
export function readRelayLock(stateFile: string): RelayLock | null {
  const lock = readRecord(lockPath(stateFile));
  return lock && holdsState(lock.pid, stateFile) ? lock : null;
}

/** Every running relay of this user, by the records in its relay home. Removes records of relays that are gone. */
export function listRelayLocks(relayHome: string): RelayLock[] {
  const folder = folderOf(relayHome);
  let names: string[] = [];
  try {
    names = readdirSync(folder).filter((name) => RECORD.test(name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  return names.slice(0, MAX_RELAYS).flatMap((name) => {
    const path = join(folder, name);
    const record = readRecord(path);
    if (record && (record.state_file === null ? isAlive(record.pid) : holdsState(record.pid, record.state_file))) {
      return [record];
    }
    rmSync(path, { force: true });
    return [];
  });
}

/**
 * Writes the record of this relay beside its state and into the list of this user. Returns a function that removes
 * both.
 */
export async function writeRelayLock(lock: RelayLock, relayHome: string): Promise<() => void> {
  const files = createFiles();
  const bytes = new TextEncoder().encode(`${JSON.stringify(lock)}\n`);
  const key = createHash('sha256').update(lock.state_file ?? `memory ${lock.pid} ${lock.port}`);
  const paths = [
    ...(lock.state_file === null ? [] : [lockPath(lock.state_file)]),
    join(folderOf(relayHome), `${key.digest('hex').slice(0, 16)}.json`),
  ];
  await Promise.all(paths.map((path) => files.writeAtomic(path, bytes, 0o600)));
  return () => {
    for (const path of paths) if (readRecord(path)?.pid === lock.pid) rmSync(path, { force: true });
  };
}

function readRecord(path: string): RelayLock | null {
  let text: string;
  try {
    if (statSync(path).size > MAX_LOCK) return null;
    text = readFileSync(path, 'utf8');
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    // A command of another user uses the configured port, as before.
    if (['ENOENT', 'ENOTDIR', 'EACCES', 'EPERM'].includes(code)) return null;
    throw error;
  }
  return readAs(RelayLock)(parseJson(text)) ?? null;
}

/** If the kernel does not list locks, a living process is assumed to hold the state. */
function holdsState(pid: number, stateFile: string): boolean {
  const holder = lockHolder(stateFile);
  return holder === undefined && !existsSync(KERNEL_LOCKS) ? isAlive(pid) : holder === pid;
}

export function isAlive(pid: number): boolean {
  if (!sendSignal(pid, 0)) return false;
  const stat = readStat(pid);
  return stat === null || !hasEnded(stat);
}
