import { followFeed, MAX_SILENCE } from '../lib/operator/event-feed.ts';
import { type OperatorRelay, Refused, Unreachable } from './operator-relay.ts';
import { pause } from './pause.ts';

export interface EventsOptions {
  relay: OperatorRelay;
  signal: AbortSignal;
  /** `event` is the name; `reset` means that events may have been missed. `data` is JSON text. */
  onEvent(event: string, data: string): void;
  /** The stream is open, for the first time or again. */
  onOpen?(): void;
  /** The stream was lost, or cannot be opened yet; called once until it is back. */
  onLost(reason: string): void;
}

/**
 * Follows `GET /relay/events` until `signal` aborts, across restarts of the relay. Resumes after the last event seen, and
 * gets `reset` first if the relay no longer knows that event (contract 09 §4).
 * @throws CommandError if the relay refuses permanently.
 */
export const followEvents = ({ relay, signal, onEvent, onOpen, onLost }: EventsOptions): Promise<void> =>
  followFeed({
    signal,
    onEvent,
    onOpen,
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

/** True if a later attempt may succeed: nothing answered, or the relay is starting, stopping or busy. */
export const mayRecover = (error: unknown): boolean =>
  error instanceof Unreachable || (error instanceof Refused && (error.status >= 500 || error.status === 429));
