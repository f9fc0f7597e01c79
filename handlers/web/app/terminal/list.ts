import { requestOn } from '../request.ts';
import type { Port } from '../session.ts';

/** A shell of the host (contract 02 §3.8, 09 §1). Unknown facts are absent. */
export interface ShellRow {
  name: string;
  /** Name of the device that attached last. */
  device?: string;
  /** Epoch seconds. */
  created_at?: number;
  active_at?: number;
  last_line?: string;
  /** Its viewers now. */
  attached?: number;
  live: boolean;
  owned_by_client: boolean;
}

const TIMEOUT = 5_000;

/** The shells that this device may attach to. @throws Error worded for people */
export async function listShells(port: Pick<Port, 'send' | 'onMessage'>, signal?: AbortSignal): Promise<ShellRow[]> {
  const waiting = { timeout: TIMEOUT, silence: 'The relay does not answer.', signal };
  const { type, payload } = await requestOn(port, 'terminal.list', waiting);
  const { sessions, message } = payload;
  if (type !== 'terminal.sessions' || !Array.isArray(sessions)) throw new Error(String(message));
  return sessions.filter(isRow);
}

const isRow = (row: unknown): row is ShellRow => typeof (row as ShellRow | null)?.name === 'string';
