import { describeError } from '../../errors.ts';
import type { CallRelay } from '../../host/dial.ts';
import { type Clock, seconds } from '../../kit/clock.ts';
import { attemptOrder, refuseKey } from './endpoints.ts';
import { routeTo } from './reach.ts';
import type { Pairing } from './settings.ts';

/** Milliseconds for all routes together. */
const TIMEOUT = 10_000;

/** `ended`: the relay no longer knows the session. `kept`: no relay could be reached, for this reason. */
export type SessionEnd = { kind: 'ended' } | { kind: 'kept'; reason: string };

/**
 * Revokes the session of a pairing on its relay (contract 01 §6.4), over the route that last worked, then over the
 * others. Best effort: never rejects, and ends within ten seconds.
 */
export async function endSession(pairing: Pairing, callRelay: CallRelay, clock: Clock): Promise<SessionEnd> {
  const signal = AbortSignal.timeout(TIMEOUT);
  let reason = 'it has no route';
  for (const endpoint of attemptOrder(pairing.endpoints, pairing.last_good)) {
    try {
      const { status } = await callRelay({
        method: 'DELETE',
        path: `/sessions/${pairing.session_token.slice(0, 8)}`,
        socketUrl: endpoint.url,
        route: routeTo(endpoint, pairing, seconds(clock)),
        headers: { authorization: `Bearer ${pairing.session_token}` },
        refuse: (spki) => refuseKey(pairing.tofu_pins, endpoint, spki),
        limit: 64 * 1024,
        signal,
      });
      // 401: the relay no longer knows the session.
      if (status === 200 || status === 401) return { kind: 'ended' };
      reason = `it answered ${status}`;
    } catch (error) {
      reason = signal.aborted ? 'it did not answer in time' : describeError(error);
    }
    if (signal.aborted) break;
  }
  return { kind: 'kept', reason };
}
