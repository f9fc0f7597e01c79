import type { Host } from '../host/index.ts';
import type { Clock } from '../kit/clock.ts';
import { asObject, parseJson, parseObject } from '../kit/json.ts';

const STALE_AFTER = 90;
const FILE_LIMIT = 64 * 1024;
/** How far two notes of one start may lie apart, in seconds: wall-clock times are rounded by whoever wrote them. */
const WALL_TOLERANCE = 2;
const BOOT_TOLERANCE = 1;
/** `/proc` counts a start in clock ticks since boot. */
const TICKS_PER_SECOND = 100;
/** Numbers from here on are epoch seconds, smaller ones ticks since boot (a century of uptime is below it). */
const EARLIEST_EPOCH = 1e9;

export interface Heartbeat {
  status: 'missing' | 'legacy' | 'malformed' | 'pid_mismatch' | 'start_mismatch' | 'fresh' | 'stale';
  /** Whether this gateway writes heartbeats at all. */
  supported: boolean;
  /** Whole seconds, for `fresh` and `stale` only. */
  age_seconds?: number;
}

/** What the files say. A text is null when its file is missing. */
export interface HeartbeatFiles {
  heartbeat: string | null;
  /** Time of the heartbeat file's last change, epoch seconds. */
  modified: number | null;
  pidFile: string | null;
}

interface Start {
  pid: number;
  start: number | null;
}

/**
 * What is known of the agent's gateway from its heartbeat (contract 01 §8.1, 07 §3.1): never a pid, path or timestamp.
 * A heartbeat that cannot be read is `malformed`; this never fails.
 */
export async function readHeartbeat(host: Host, clock: Clock): Promise<Heartbeat> {
  const path = `${host.agentHome}/state/gateway.heartbeat`;
  const unreadable = () => '';
  const [heartbeat, facts, pidFile] = await Promise.all([
    host.files.readText(path, FILE_LIMIT).catch(unreadable),
    host.files.stat(path).catch(() => null),
    host.files.readText(`${host.agentHome}/gateway.pid`, FILE_LIMIT).catch(() => null),
  ]);
  return judgeHeartbeat({ heartbeat, modified: facts && facts.modified / 1000, pidFile }, clock.now() / 1000);
}

/** The verdict on a heartbeat at `now` (epoch seconds). What a missing or unreadable pid file cannot tell is not held against it. */
export function judgeHeartbeat({ heartbeat, modified, pidFile }: HeartbeatFiles, now: number): Heartbeat {
  if (heartbeat === null) return { status: pidFile === null ? 'missing' : 'legacy', supported: false };
  const payload = parseObject(heartbeat);
  const beat = payload && startOf(payload);
  const updated = payload && isoSeconds(payload.updated_at);
  if (!beat || updated === null) return { status: 'malformed', supported: true };
  const known = pidFile === null ? null : pidFileStart(pidFile);
  if (known && known.pid !== beat.pid) return { status: 'pid_mismatch', supported: true };
  if (known && !sameStart(known.start, beat.start)) return { status: 'start_mismatch', supported: true };
  const age = Math.max(0, now - Math.min(updated, modified ?? updated));
  return { status: age > STALE_AFTER ? 'stale' : 'fresh', supported: true, age_seconds: Math.floor(age) };
}

const isPid = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** Pid and start of a record, or null when either has a form that nobody writes. */
function startOf({ pid, start_time }: Record<string, unknown>): Start | null {
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
  return record && startOf(record);
}

function isoSeconds(value: unknown): number | null {
  if (typeof value !== 'string' || !/^\d{4}-\d\d-\d\d[T ]/.test(value)) return null;
  const time = Date.parse(value);
  return Number.isNaN(time) ? null : time / 1000;
}

/** Whether two notes may mean one start. Different units cannot be compared. */
function sameStart(a: number | null, b: number | null): boolean {
  if (a === null || b === null) return true;
  const wall = a >= EARLIEST_EPOCH;
  if (wall !== b >= EARLIEST_EPOCH) return true;
  return Math.abs(a - b) <= (wall ? WALL_TOLERANCE : BOOT_TOLERANCE * TICKS_PER_SECOND);
}
