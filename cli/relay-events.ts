import { followFeed, MAX_SILENCE } from '../lib/operator/event-feed.ts';
import { type OperatorRelay, Refused, Unreachable } from './operator-relay.ts';
import { pause } from './pause.ts';

export interface EventsParts {
  relay: OperatorRelay;
  signal: AbortSignal;
  /** `event` is its name; `reset` says that events may have been missed. `data` is JSON text. */
  onEvent(event: string, data: string): void;
  /** The stream was lost, or cannot be opened yet; called once until it is back. */
  onLost(reason: string): void;
}

/**
 * Follows `GET /relay/events` until `signal` aborts, over restarts of the relay: resumes after the last event it saw,
 * and gets `reset` first when the relay no longer knows that one (contract 09 §4).
 * @throws CommandError when the relay refuses for good.
 */
export const followEvents = ({ relay, signal, onEvent, onLost }: EventsParts): Promise<void> =>
  followFeed({
    signal,
    onEvent,
    onLost,
    mayRecover,
    async open(lastId, onText) {
      await relay.call({
        method: 'GET',
        path: '/relay/events',
        headers: { accept: 'text/event-stream', ...(lastId !== undefined && { 'last-event-id': lastId }) },
        timeout: MAX_SILENCE,
        signal,
        onText,
      });
    },
    wait: (milliseconds) => pause(milliseconds, signal),
  });

/** True if a later attempt may succeed: nobody answered, or a relay that is starting, stopping or busy. */
export const mayRecover = (error: unknown): boolean =>
  error instanceof Unreachable || (error instanceof Refused && (error.status >= 500 || error.status === 429));
