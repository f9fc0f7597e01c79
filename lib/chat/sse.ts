import { createParser } from 'eventsource-parser';

const MAX_EVENT = 4 * 1024 * 1024;

export interface SseEvent {
  /** The name of the event, where the stream gives one. */
  event?: string;
  data: string;
}

export interface SseReader {
  push(bytes: Uint8Array): void;
  /** The stream has ended: an event without its blank line counts all the same. */
  end(): void;
}

/**
 * Reads an event stream as it arrives in pieces (contract 02 §5.3). Events of more than `limit` bytes are skipped
 * and never held in memory. `onEvent` is called for every event in order, before `push` returns.
 */
export function createSseReader(onEvent: (event: SseEvent) => void, limit = MAX_EVENT): SseReader {
  const parser = createParser({ onEvent: ({ event, data }) => onEvent({ event, data }) });
  const decoder = new TextDecoder();
  /** The text so far ended in `\r`: a `\n` that follows belongs to it. */
  let afterReturn = false;
  let atLineStart = true;
  let inComment = false;
  let skipping = false;
  let size = 0;

  /** One line with its `\n`, or a part of one. */
  function part(text: string): void {
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

  /** The parser would hold back a line that ends in `\r` until it has seen what follows: it is shown `\n` only. */
  function feed(text: string): void {
    if (text === '') return;
    const rest = afterReturn && text.startsWith('\n') ? text.slice(1) : text;
    afterReturn = text.endsWith('\r');
    const lines = rest.includes('\r') ? rest.replace(/\r\n?/g, '\n') : rest;
    for (let at = 0; at < lines.length; ) {
      const end = lines.indexOf('\n', at) + 1 || lines.length;
      part(lines.slice(at, end));
      at = end;
    }
  }

  return {
    push: (bytes) => feed(decoder.decode(bytes, { stream: true })),
    end() {
      feed(decoder.decode());
      // Ends the last line, and then the last event.
      if (!atLineStart) part('\n');
      part('\n');
    },
  };
}

function utf8Length(text: string): number {
  let length = text.length;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) continue;
    // A surrogate is two bytes of the four of its pair.
    length += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2;
  }
  return length;
}
