import { type ReadonlySignal, signal } from '@preact/signals';
import type { Clock } from '../../../../lib/kit/clock.ts';
import { createResource, type Snapshot } from './resource.ts';

/** Milliseconds for which new items are collected, since a busy relay logs thousands of lines a second. */
const BATCH = 100;

export interface TailOptions<T> {
  /** The last items, oldest first. */
  load(): Promise<readonly T[]>;
  /** Identifies items: a later one with the same key replaces the former. */
  keyOf(item: T): string;
  /**
   * True if the later one replaces the former in its place, as a newer state. Otherwise it goes to the end, since the list
   * may contain items before the events that announce them, and before older ones, arrive.
   */
  inPlace?: boolean;
  /** Maximum items kept. */
  max: number;
  clock: Pick<Clock, 'after' | 'now'>;
  onError?(error: unknown): void;
}

/** The last items of a list, read once and kept up to date by events. */
export function createTail<T>({ load, keyOf, inPlace = false, max, clock, onError }: TailOptions<T>) {
  const items = signal<Snapshot<readonly T[]>>({ at: 0 });
  /** Items that came while the list was being read. They may be in it too, or be newer. */
  let arrived: T[] | undefined;
  let waiting: T[] = [];

  const source = createResource<readonly T[]>({
    async load() {
      flush();
      arrived = [];
      try {
        return merge(await load(), arrived);
      } catch (error) {
        waiting = arrived;
        throw error;
      } finally {
        arrived = undefined;
      }
    },
    onError,
    now: clock.now,
  });
  source.state.subscribe((snapshot) => {
    // A failure has the value of the last success, to which items were added since.
    items.value = snapshot.error === undefined ? snapshot : { ...items.value, error: snapshot.error };
    flush();
  });

  function merge(former: readonly T[], later: readonly T[]): readonly T[] {
    const byKey = new Map<string, T>();
    for (const item of [...former, ...later]) {
      const key = keyOf(item);
      if (!inPlace) byKey.delete(key);
      byKey.set(key, item);
    }
    return [...byKey.values()].slice(-max);
  }

  function flush(): void {
    const added = waiting;
    waiting = [];
    const { value } = items.value;
    if (value && added.length > 0) items.value = { ...items.value, value: merge(value, added) };
  }

  return {
    ...source,
    state: items as ReadonlySignal<Snapshot<readonly T[]>>,
    /** Adds an item that is new, or has changed. */
    add(item: T): void {
      if (arrived) {
        arrived.push(item);
        if (arrived.length > max) arrived.shift();
        return;
      }
      if (waiting.length === 0) clock.after(BATCH, flush);
      waiting.push(item);
      if (waiting.length > max) waiting.shift();
    },
  };
}
