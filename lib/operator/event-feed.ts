import { createParser } from 'eventsource-parser';
import { describeError } from '../errors.ts';

/** Milliseconds before the first attempt to reopen a lost stream, doubled with each failure up to the limit. */
const FIRST_DELAY = 1000;
const MAX_DELAY = 8000;
/** Characters of one event. */
const MAX_EVENT = 4 * 1024 * 1024;

/** Milliseconds without a byte after which a stream counts as lost. The relay sends a comment every 15 s. */
export const MAX_SILENCE = 45_000;

export interface FeedOptions {
  signal: AbortSignal;
  /**
   * Opens the stream after the event `lastId` and passes on its text. Resolves when the relay ends it; rejects if it cannot
   * be opened, or is lost.
   */
  open(lastId: string | undefined, onText: (text: string) => void): Promise<void>;
  /** `event` is the name; `reset` means that events may have been missed. `data` is JSON text. */
  onEvent(event: string, data: string): void;
  /** The stream is open, for the first time or again. */
  onOpen?(): void;
  /** The stream was lost, or cannot be opened yet; called once until it is back. */
  onLost(reason: string): void;
  /** True if a later attempt may succeed. */
  mayRecover(error: unknown): boolean;
  /** Resolves after some milliseconds, or earlier if an earlier attempt makes sense or `signal` aborts. */
  wait(milliseconds: number): Promise<void>;
}

/**
 * Follows `GET /relay/events` until `signal` aborts, over restarts of the relay. Resumes after the last event seen, and gets
 * `reset` first if the relay no longer knows that event (contract 09 §4).
 * @throws an error of `open` that is not recoverable.
 */
export async function followFeed(options: FeedOptions): Promise<void> {
  const { signal, open, onEvent, onOpen, onLost, mayRecover, wait } = options;
  let lastId: string | undefined;
  let state: 'closed' | 'open' | 'lost' = 'closed';
  let failures = 0;
  const lost = (reason: string) => {
    if (state !== 'lost') onLost(reason);
    state = 'lost';
  };
  while (!signal.aborted) {
    const parser = createParser({
      maxBufferSize: MAX_EVENT,
      onEvent({ id, event, data }) {
        lastId = id ?? lastId;
        onEvent(event ?? 'message', data);
      },
    });
    try {
      await open(lastId, (text) => {
        if (state !== 'open') onOpen?.();
        state = 'open';
        failures = 0;
        parser.feed(text);
      });
      lost('the relay ended the stream');
    } catch (error) {
      if (signal.aborted) return;
      if (!mayRecover(error)) throw error;
      lost(describeError(error));
    }
    await wait(Math.min(FIRST_DELAY * 2 ** failures++, MAX_DELAY));
  }
}
