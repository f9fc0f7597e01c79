import { type ReadonlySignal, signal } from '@preact/signals';
import { describeError } from '../../../../lib/errors.ts';
import type { Clock } from '../../../../lib/kit/clock.ts';

export interface Snapshot<T> {
  /** The last answer, even while a later one is missing. */
  value?: T;
  /** Epoch milliseconds of that answer. */
  at: number;
  /** Why the last attempt failed. */
  error?: string;
}

/** A resource requested from the relay. */
export interface Resource<T> {
  readonly state: ReadonlySignal<Snapshot<T>>;
  /** Requests it again, after a running attempt. Never rejects. */
  refresh(): Promise<void>;
  /** The answer is out of date: requests it again at once if it is watched, else when it next is. */
  invalidate(): void;
  /** Keeps the answer up to date until the returned function is called. */
  watch(): () => void;
}

export interface ResourceOptions<T> {
  load(): Promise<T>;
  /** Called with every failure, before `state` changes. */
  onError?(error: unknown): void;
  now?(): number;
  /** Limits invalidations to four requests a second, since a busy relay reports thousands of changes. */
  clock?: Pick<Clock, 'after' | 'monotonic'>;
}

/** Milliseconds between the starts of two requests caused only by invalidations. */
const SPACING = 250;

/** A resource, loaded when it is first watched. Invalidations cause at most one concurrent request. */
export function createResource<T>({ load, onError, now = Date.now, clock }: ResourceOptions<T>): Resource<T> {
  const state = signal<Snapshot<T>>({ at: 0 });
  let watchers = 0;
  let isCurrent = false;
  let running: Promise<void> | undefined;
  let again = false;
  let begun = Number.NEGATIVE_INFINITY;
  let isPlanned = false;

  async function run(): Promise<void> {
    do {
      again = false;
      isCurrent = true;
      begun = clock?.monotonic() ?? begun;
      try {
        state.value = { value: await load(), at: now() };
      } catch (error) {
        isCurrent = false;
        onError?.(error);
        state.value = { ...state.value, error: describeError(error) };
      }
    } while (again);
  }

  function refresh(): Promise<void> {
    if (running) again = true;
    running ??= run().finally(() => {
      running = undefined;
    });
    return running;
  }

  function refreshSoon(): void {
    const wait = clock ? begun + SPACING - clock.monotonic() : 0;
    if (!clock || wait <= 0) void refresh();
    else if (!isPlanned) {
      isPlanned = true;
      clock.after(wait, () => {
        isPlanned = false;
        if (watchers > 0) void refresh();
      });
    }
  }

  return {
    state,
    refresh,
    invalidate() {
      isCurrent = false;
      if (watchers > 0) refreshSoon();
    },
    watch() {
      watchers++;
      if (!isCurrent) void refresh();
      let isWatching = true;
      return () => {
        if (isWatching) watchers--;
        isWatching = false;
      };
    },
  };
}
