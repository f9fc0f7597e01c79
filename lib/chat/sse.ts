import { createParser } from 'eventsource-parser';
import { utf8Length } from '../kit/text.ts';

const MAX_EVENT_BYTES = 4 * 1024 * 1024;

export interface SseEvent {
  /** Its name, if it has one. */
  event?: string;
  data: string;
}

/**
 * Reads an event stream as it arrives (contract 02 §5.3). Events of more than `limit` bytes are skipped without
 * buffering them. `onEvent` is called for every event in order, before `push` returns.
 */
export function createSseReader(onEvent: (event: SseEvent) => void, limit = MAX_EVENT_BYTES) {
  const parser = createParser({ onEvent: ({ event, data }) => onEvent({ event, data }) });
  const decoder = new TextDecoder();
  /** The text so far ended in `\r`, so a following `\n` belongs to it. */
  let afterReturn = false;
  let atLineStart = true;
  let inComment = false;
  let skipping = false;
  let size = 0;

  /** Takes a line with its `\n`, or a part of one. */
  function feedPart(text: string): void {
    if (atLineStart && text === '\n') {
      if (!skipping) parser.feed(text);
      skipping = false;
      size = 0;
      return;
    }
    if (atLineStart) inComment = text.startsWith(':');
    atLineStart = text.endsWith('\n');
    if (inComment || skipping) return;
    size += utf8Length(text);
    if (size > limit) {
      skipping = true;
      parser.reset();
    } else parser.feed(text);
  }

  /** Normalises line ends, because the parser holds back a line that ends in `\r` until more text arrives. */
  function feed(text: string): void {
    if (text === '') return;
    const rest = afterReturn && text.startsWith('\n') ? text.slice(1) : text;
    afterReturn = text.endsWith('\r');
    const lines = rest.includes('\r') ? rest.replace(/\r\n?/g, '\n') : rest;
    for (let at = 0; at < lines.length; ) {
      const end = lines.indexOf('\n', at) + 1 || lines.length;
      feedPart(lines.slice(at, end));
      at = end;
    }
  }

  return {
    push: (bytes: Uint8Array): void => feed(decoder.decode(bytes, { stream: true })),
    /** The stream has ended. A last event without a blank line is still emitted. */
    end(): void {
      feed(decoder.decode());
      // Ends the last line, then the last event.
      if (!atLineStart) feedPart('\n');
      feedPart('\n');
    },
  };
}
