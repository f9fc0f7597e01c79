import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { asObject } from '../kit/json.ts';
import { diskCheck } from './doctor/machine.ts';

/** Problem of the disk that holds the state: full, nearly full or read-only (contract 11 §5). */
export interface DiskProblem {
  status: 'warn' | 'error';
  problem: string;
  next: string;
}

/** Null if the disk can store the state. Never rejects: a disk that cannot be examined is a problem. */
export async function findDiskProblem(deps: { config: Config; host: Host }): Promise<DiskProblem | null> {
  try {
    const { status, summary, next = '' } = await diskCheck(deps);
    return status === 'warn' || status === 'error' ? { status, problem: summary, next } : null;
  } catch (error) {
    const next = 'Look at that disk. Find out more with: svc relay doctor';
    return { status: 'error', problem: describeError(error), next };
  }
}

/** `disk_problem` of `GET /relay/info`; null if the relay reports none, or has no disk. */
export function readDiskProblem(info: unknown): DiskProblem | null {
  const { status, problem, next } = asObject(asObject(info)?.disk_problem) ?? {};
  if ((status !== 'warn' && status !== 'error') || typeof problem !== 'string') return null;
  return { status, problem, next: typeof next === 'string' ? next : '' };
}
