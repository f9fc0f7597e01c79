import { systemClock } from '../../../../lib/kit/clock.ts';
import { newUuid } from '../../../../lib/kit/uuid.ts';
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
export function listShells(port: Pick<Port, 'send' | 'onMessage'>, signal?: AbortSignal): Promise<ShellRow[]> {
  const id = newUuid();
  return new Promise((resolve, reject) => {
    const end = (act: () => void) => {
      stop();
      cancel();
      signal?.removeEventListener('abort', abort);
      act();
    };
    const fail = (text: string) => end(() => reject(new Error(text)));
    const abort = () => fail('');
    const stop = port.onMessage((message) => {
      if (message.id !== id) return;
      const { sessions, message: text } = message.payload;
      if (message.type === 'terminal.sessions' && Array.isArray(sessions)) end(() => resolve(sessions.filter(isRow)));
      else fail(String(text));
    });
    const cancel = systemClock.after(TIMEOUT, () => fail('The relay does not answer.'));
    signal?.addEventListener('abort', abort);
    if (!port.send('terminal.list', {}, id)) fail('The relay does not answer.');
  });
}

const isRow = (row: unknown): row is ShellRow => typeof (row as ShellRow | null)?.name === 'string';
