import type { Row } from '../../../../lib/terminal/list.ts';
import { requestOn } from '../request.ts';
import type { Port } from '../session.ts';

const TIMEOUT = 5_000;

/** The shells that this device may attach to. @throws Error worded for people */
export async function listShells(port: Pick<Port, 'send' | 'onMessage'>, signal?: AbortSignal): Promise<Row[]> {
  const waiting = { timeout: TIMEOUT, silence: 'The relay does not answer.', signal };
  const { type, payload } = await requestOn(port, 'terminal.list', waiting);
  const { sessions, message } = payload;
  if (type !== 'terminal.sessions' || !Array.isArray(sessions)) throw new Error(String(message));
  return sessions.filter(isRow);
}

const isRow = (row: unknown): row is Row => typeof (row as Row | null)?.name === 'string';
