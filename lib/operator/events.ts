import type { Clock } from '../kit/clock.ts';

export type EventName = 'device' | 'bridge' | 'desktop' | 'queue' | 'media' | 'pairing' | 'log' | 'security' | 'freeze';

export interface RelayEvent {
  id: number;
  event: EventName;
  /** JSON text. */
  data: string;
}

const MAX_EVENTS = 500;
/** Characters of all stored events. */
const MAX_CHARACTERS = 2 * 1024 * 1024;
/** Milliseconds for which events are stored after the last listener has left, so that it can resume. */
const RESUME_WINDOW = 60_000;
const MAX_LISTENERS = 32;

export interface Subscription {
  /** Missed events; null if they are no longer known. */
  missed: RelayEvent[] | null;
  /** Id of the newest event. */
  latest: number;
  end(): void;
}

/**
 * Events of the relay, for the operator's page (contract 09 §4). They are recorded only while somebody listens or may
 * resume, so that nobody else pays for them. Ids begin with the time, so that the id of a former process is never mistaken
 * for a known one.
 */
export function createEvents(clock: Clock) {
  const events: RelayEvent[] = [];
  const listeners = new Set<(event: RelayEvent) => void>();
  let characters = 0;
  let latest = Math.trunc(clock.now());
  /** Id of the newest forgotten event. */
  let forgotten = latest;
  let keepUntil = 0;

  function forgetOldest(): void {
    const oldest = events.shift();
    if (!oldest) return;
    characters -= oldest.data.length;
    forgotten = oldest.id;
  }

  return {
    /** Publishes an event. `data` is called only if the value is needed. */
    publish(event: EventName, data: () => unknown): void {
      latest++;
      if (listeners.size === 0 && clock.monotonic() >= keepUntil) {
        events.length = 0;
        characters = 0;
        forgotten = latest;
        return;
      }
      const published = { id: latest, event, data: JSON.stringify(data()) };
      events.push(published);
      characters += published.data.length;
      while (events.length > MAX_EVENTS || (characters > MAX_CHARACTERS && events.length > 1)) forgetOldest();
      for (const listener of [...listeners]) listener(published);
    },

    /** Follows the events after the id `after`. Undefined if too many are listening already. */
    subscribe(after: number | undefined, listener: (event: RelayEvent) => void): Subscription | undefined {
      if (listeners.size >= MAX_LISTENERS) return undefined;
      const isKnown = after !== undefined && after >= forgotten && after <= latest;
      listeners.add(listener);
      return {
        missed: isKnown ? events.filter(({ id }) => id > after) : null,
        latest,
        end() {
          if (listeners.delete(listener)) keepUntil = clock.monotonic() + RESUME_WINDOW;
        },
      };
    },
  };
}
