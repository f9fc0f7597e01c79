import type { Host } from '../host/index.ts';
import { parseObject } from '../kit/json.ts';

const TAIL = 256 * 1024;
const CLEAN = new Set(['atexit.hook', 'asyncio.run.return', 'asyncio.run.SystemExit', 'asyncio.run.KeyboardInterrupt']);

export interface PriorExit {
  prior_exit: 'clean' | 'unclean' | 'unknown';
  suspected_oom?: true;
}

/**
 * How the agent's gateway ended the last time (contract 01 §8.1, 07 §3.1), from the last 256 KiB of its exit log.
 * `unknown` when there is no log or it cannot be read; this never fails.
 */
export async function readPriorExit(host: Host): Promise<PriorExit> {
  const log = await host.files.readTail(`${host.agentHome}/logs/gateway-exit-diag.log`, TAIL).catch(() => null);
  return judgePriorExit(log ?? '');
}

/** The verdict of the record before the last `gateway.start`. Lines that are no record (the first may be cut) are passed over. */
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
