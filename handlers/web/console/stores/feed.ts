import { type ReadonlySignal, signal } from '@preact/signals';
import type { Clock } from '../../../../lib/kit/clock.ts';
import { sleep } from '../../../../lib/kit/timeouts.ts';
import { followFeed, MAX_SILENCE } from '../../../../lib/operator/event-feed.ts';
import { type Api, ApiError } from '../../shared/api.ts';

/** State of the connection between console and relay. Times are epoch milliseconds. */
export type FeedState =
  | { kind: 'connecting' }
  | { kind: 'live' }
  /** The relay does not answer; the data shown is from `since`. */
  | { kind: 'lost'; since: number }
  /** The relay does not accept this browser as its operator's. */
  | { kind: 'refused'; reason: string };

export interface FeedOptions {
  api: Pick<Api, 'open'>;
  clock: Clock;
  onEvent(event: string, data: string): void;
}

/** True if the relay said that the caller is not its operator. */
export const isRefusal = (error: unknown): error is ApiError =>
  error instanceof ApiError && (error.status === 401 || error.status === 403);

/** Follows the relay's events in a browser, across restarts and network losses. */
export function createFeed({ api, clock, onEvent }: FeedOptions) {
  const state = signal<FeedState>({ kind: 'connecting' });
  let over = new AbortController();
  let nap = new AbortController();
  over.abort();

  /** One stream, ended by `signal` or by silence. */
  async function read(lastId: string | undefined, onText: (text: string) => void, signal: AbortSignal): Promise<void> {
    const silence = new AbortController();
    const abort = () => silence.abort();
    let cancel = clock.after(MAX_SILENCE, abort);
    signal.addEventListener('abort', abort);
    try {
      const response = await api.open('relay/events', {
        headers: { accept: 'text/event-stream', ...(lastId !== undefined && { 'last-event-id': lastId }) },
        signal: silence.signal,
      });
      const reader = response.body
        ?.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)
        .getReader();
      for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
        cancel();
        cancel = clock.after(MAX_SILENCE, abort);
        onText(part.value);
      }
    } finally {
      cancel();
      signal.removeEventListener('abort', abort);
    }
  }

  async function follow(signal: AbortSignal): Promise<void> {
    try {
      await followFeed({
        signal,
        open: (lastId, onText) => read(lastId, onText, signal),
        onEvent,
        onOpen: () => {
          state.value = { kind: 'live' };
        },
        onLost: () => {
          state.value = { kind: 'lost', since: clock.now() };
        },
        mayRecover: (error) => !isRefusal(error),
        async wait(milliseconds) {
          nap = new AbortController();
          const end = () => nap.abort();
          signal.addEventListener('abort', end);
          await sleep({ clock, timeout: milliseconds, signal: nap.signal });
          signal.removeEventListener('abort', end);
        },
      });
    } catch (error) {
      over.abort();
      state.value = { kind: 'refused', reason: (error as Error).message };
    }
  }

  return {
    state: state as ReadonlySignal<FeedState>,
    /** Follows the events until `stop`. Starts again after a stop or a refusal. */
    start() {
      if (!over.signal.aborted) return;
      over = new AbortController();
      state.value = { kind: 'connecting' };
      void follow(over.signal);
    },
    /** Retries now instead of waiting for the next attempt. */
    wake: () => nap.abort(),
    stop: () => over.abort(),
  };
}
