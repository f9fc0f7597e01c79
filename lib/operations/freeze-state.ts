import { isTime } from '../kit/clock.ts';
import { asObject } from '../kit/json.ts';

/** The freeze in effect, as shown to clients. */
export interface FreezeState {
  /** Epoch seconds. */
  since: number;
  /** Name of the device that froze the relay, or `operator`. */
  by: string;
  reason: string | null;
}

/** Reads the relay's `{frozen, since, by, reason}` (contract 09 §3). Null if it is not frozen. */
export function readFreeze(value: unknown): FreezeState | null {
  const { frozen, since, by, reason } = asObject(value) ?? {};
  if (frozen !== true) return null;
  return {
    since: isTime(since, 1000) ? since : 0,
    by: typeof by === 'string' ? by : '',
    reason: typeof reason === 'string' && reason !== '' ? reason : null,
  };
}
