import type { Clock } from '../kit/clock.ts';
import type { UiEvent, UiEventType } from './device.ts';
import { truncate } from './text.ts';

const CAPACITY = 500;
const MAX_TEXT = 200;
/** At most one entry per type and package in this time. */
const MIN_INTERVAL_MS = 100;

const SOURCES: Record<UiEventType, string> = {
  click: 'TYPE_VIEW_CLICKED',
  text_changed: 'TYPE_VIEW_TEXT_CHANGED',
  window_content_changed: 'TYPE_WINDOW_CONTENT_CHANGED',
  window_state_changed: 'TYPE_WINDOW_STATE_CHANGED',
  scroll: 'TYPE_VIEW_SCROLLED',
};

/** An event as callers see it (contract 03 §5, Events). */
export interface EventEntry {
  timestamp: number;
  event_type: UiEventType;
  package_name?: string;
  class_name?: string;
  text?: string;
  content_description?: string;
  source: string;
}

export type EventRing = ReturnType<typeof createEventRing>;

/** The newest 500 accessibility events, recorded while streaming is on. */
export function createEventRing(clock: Clock) {
  let streaming = false;
  let entries: EventEntry[] = [];
  /** Monotonic ms of the last entry, by type and package. */
  let lastAdded = new Map<string, number>();

  return {
    add(event: UiEvent): void {
      if (!streaming) return;
      const now = clock.monotonic();
      const key = `${event.type} ${event.packageName ?? ''}`;
      const before = lastAdded.get(key);
      if (before !== undefined && now - before < MIN_INTERVAL_MS) return;
      lastAdded.set(key, now);
      const text = event.password ? '' : truncate(event.text.join(' '), MAX_TEXT);
      entries.push({
        timestamp: clock.now(),
        event_type: event.type,
        ...(event.packageName && { package_name: event.packageName }),
        ...(event.className && { class_name: event.className }),
        ...(text && { text }),
        ...(event.contentDescription && { content_description: truncate(event.contentDescription, MAX_TEXT) }),
        source: SOURCES[event.type],
      });
      if (entries.length > CAPACITY) entries.shift();
    },
    get streaming() {
      return streaming;
    },
    /** Switches recording. A change empties the ring; setting the same value does nothing. */
    stream(enabled: boolean): void {
      if (enabled === streaming) return;
      streaming = enabled;
      entries = [];
      lastAdded = new Map();
    },
    /** The newest `limit` entries later than `since` (epoch ms), oldest first. */
    read: (since: number, limit: number): EventEntry[] =>
      entries.filter(({ timestamp }) => timestamp > since).slice(-limit),
  };
}
