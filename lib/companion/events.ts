import type { Clock } from '../kit/clock.ts';
import type { UiEvent, UiEventType } from './device.ts';
import { cut } from './text.ts';

const CAPACITY = 500;
const MAX_TEXT = 200;
/** At most one entry of a type and package in this time, ms. */
const QUIET = 100;

const SOURCES: Record<UiEventType, string> = {
  click: 'TYPE_VIEW_CLICKED',
  text_changed: 'TYPE_VIEW_TEXT_CHANGED',
  window_content_changed: 'TYPE_WINDOW_CONTENT_CHANGED',
  window_state_changed: 'TYPE_WINDOW_STATE_CHANGED',
  scroll: 'TYPE_VIEW_SCROLLED',
};

/** What a caller sees of an event (contract 03 §5, Events). */
export interface EventEntry {
  timestamp: number;
  event_type: UiEventType;
  package_name?: string;
  class_name?: string;
  text?: string;
  content_description?: string;
  source: string;
}

/** The newest 500 accessibility events, while capture is on. */
export interface EventRing {
  add(event: UiEvent): void;
  readonly streaming: boolean;
  /** Every change wipes the ring; the same value again does nothing. */
  stream(enabled: boolean): void;
  /** Oldest first: the newest `limit` ones later than `since` (epoch ms). */
  read(since: number, limit: number): EventEntry[];
}

export function createEventRing(clock: Clock): EventRing {
  let streaming = false;
  let entries: EventEntry[] = [];
  let last = new Map<string, number>();

  return {
    add(event) {
      if (!streaming) return;
      const now = clock.monotonic();
      const key = `${event.type} ${event.packageName ?? ''}`;
      const before = last.get(key);
      if (before !== undefined && now - before < QUIET) return;
      last.set(key, now);
      const text = event.password ? '' : cut(event.text.join(' '), MAX_TEXT);
      entries.push({
        timestamp: clock.now(),
        event_type: event.type,
        ...(event.packageName && { package_name: event.packageName }),
        ...(event.className && { class_name: event.className }),
        ...(text && { text }),
        ...(event.contentDescription && { content_description: cut(event.contentDescription, MAX_TEXT) }),
        source: SOURCES[event.type],
      });
      if (entries.length > CAPACITY) entries.shift();
    },
    get streaming() {
      return streaming;
    },
    stream(enabled) {
      if (enabled === streaming) return;
      streaming = enabled;
      entries = [];
      last = new Map();
    },
    read: (since, limit) => entries.filter(({ timestamp }) => timestamp > since).slice(-limit),
  };
}
