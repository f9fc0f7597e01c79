import type { Host } from '../host/index.ts';
import type { Clock } from '../kit/clock.ts';
import { asObject, parseJson, parseObject } from '../kit/json.ts';

/** Seconds. */
const STALE_AFTER = 90;
const MAX_FILE = 64 * 1024;
/** Seconds by which two records of the same start may differ, since their writers round wall-clock times. */
const WALL_TOLERANCE = 2;
const BOOT_TOLERANCE = 1;
/** `/proc` gives start times in clock ticks since boot. */
const TICKS_PER_SECOND = 100;
/** Numbers from here on are epoch seconds, smaller ones are ticks since boot (unambiguous for 115 days of uptime). */
const EARLIEST_EPOCH = 1e9;

export interface Heartbeat {
  status: 'missing' | 'legacy' | 'malformed' | 'pid_mismatch' | 'start_mismatch' | 'fresh' | 'stale';
  /** True if this gateway writes heartbeats at all. */
  supported: boolean;
  /** Whole seconds, for `fresh` and `stale` only. */
  age_seconds?: number;
}

/** Contents of the files; null for a missing file. */
export interface HeartbeatFiles {
  heartbeat: string | null;
  /** Modification time of the heartbeat file, epoch seconds. */
  modified: number | null;
  pidFile: string | null;
}

interface Start {
  pid: number;
  start: number | null;
}

/**
 * State of the agent's gateway, from its heartbeat (contract 01 §8.1, 07 §3.1): never a pid, path or timestamp. An
 * unreadable heartbeat is `malformed`. Never rejects.
 */
export async function readHeartbeat(host: Host, clock: Clock): Promise<Heartbeat> {
  const path = `${host.agentHome}/state/gateway.heartbeat`;
  const unreadable = () => '';
  const [heartbeat, facts, pidFile] = await Promise.all([
    host.files.readText(path, MAX_FILE).catch(unreadable),
    host.files.stat(path).catch(() => null),
    host.files.readText(`${host.agentHome}/gateway.pid`, MAX_FILE).catch(() => null),
  ]);
  return judgeHeartbeat({ heartbeat, modified: facts && facts.modified / 1000, pidFile }, clock.now() / 1000);
}

/** Judges a heartbeat at `now` (epoch seconds). A missing or unreadable pid file counts as matching. */
export function judgeHeartbeat({ heartbeat, modified, pidFile }: HeartbeatFiles, now: number): Heartbeat {
  if (heartbeat === null) return { status: pidFile === null ? 'missing' : 'legacy', supported: false };
  const payload = parseObject(heartbeat);
  const beat = payload && processStart(payload);
  const updated = payload && isoSeconds(payload.updated_at);
  if (!beat || updated === null) return { status: 'malformed', supported: true };
  const known = pidFile === null ? null : pidFileStart(pidFile);
  if (known && known.pid !== beat.pid) return { status: 'pid_mismatch', supported: true };
  if (known && !sameStart(known.start, beat.start)) return { status: 'start_mismatch', supported: true };
  const age = Math.max(0, now - Math.min(updated, modified ?? updated));
  return { status: age > STALE_AFTER ? 'stale' : 'fresh', supported: true, age_seconds: Math.floor(age) };
}

const isPid = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** Pid and start of a record; null if either is malformed. */
function processStart({ pid, start_time }: Record<string, unknown>): Start | null {
  if (!isPid(pid)) return null;
  if (start_time === undefined || start_time === null) return { pid, start: null };
  const start = typeof start_time === 'number' ? start_time : isoSeconds(start_time);
  return start === null ? null : { pid, start };
}

/** `gateway.pid` is JSON `{pid, start_time?}` or a bare integer (contract 07 §1.3). */
function pidFileStart(text: string): Start | null {
  const value = parseJson(text.trim());
  if (isPid(value)) return { pid: value, start: null };
  const record = asObject(value);
  return record && processStart(record);
}

function isoSeconds(value: unknown): number | null {
  if (typeof value !== 'string' || !/^\d{4}-\d\d-\d\d[T ]/.test(value)) return null;
  const time = Date.parse(value);
  return Number.isNaN(time) ? null : time / 1000;
}

/** True if two records may be from the same start. Different units cannot be compared. */
function sameStart(a: number | null, b: number | null): boolean {
  if (a === null || b === null) return true;
  const wall = a >= EARLIEST_EPOCH;
  if (wall !== b >= EARLIEST_EPOCH) return true;
  return Math.abs(a - b) <= (wall ? WALL_TOLERANCE : BOOT_TOLERANCE * TICKS_PER_SECOND);
}

const TAIL = 256 * 1024;
const CLEAN = new Set(['atexit.hook', 'asyncio.run.return', 'asyncio.run.SystemExit', 'asyncio.run.KeyboardInterrupt']);

export interface PriorExit {
  prior_exit: 'clean' | 'unclean' | 'unknown';
  suspected_oom?: true;
}

/**
 * The last exit of the agent's gateway (contract 01 §8.1, 07 §3.1), from the last 256 KiB of its exit log. `unknown`
 * without a readable log. Never rejects.
 */
export async function readPriorExit(host: Host): Promise<PriorExit> {
  const log = await host.files.readTail(`${host.agentHome}/logs/gateway-exit-diag.log`, TAIL).catch(() => null);
  return judgePriorExit(log ?? '');
}

/** Judges the record before the last `gateway.start`. Skips lines that are not records; the first line may be truncated. */
export function judgePriorExit(log: string): PriorExit {
  const lines = log.split('\n');
  let started = false;
  for (let at = lines.length - 1; at >= 0; at--) {
    const record = recordOf(lines[at] as string);
    if (!record) continue;
    if (started) return verdict(record);
    started = record.tag === 'gateway.start';
  }
  return { prior_exit: 'unknown' };
}

interface ExitRecord {
  tag: string;
  suspected_oom?: unknown;
}

function verdict(record: ExitRecord): PriorExit {
  if (CLEAN.has(record.tag)) return { prior_exit: 'clean' };
  if (record.tag !== 'gateway.previous_unclean_exit') return { prior_exit: 'unknown' };
  return record.suspected_oom === true ? { prior_exit: 'unclean', suspected_oom: true } : { prior_exit: 'unclean' };
}

function recordOf(line: string): ExitRecord | null {
  if (!line.trimStart().startsWith('{')) return null;
  const value = parseObject(line);
  return typeof value?.tag === 'string' ? (value as unknown as ExitRecord) : null;
}
