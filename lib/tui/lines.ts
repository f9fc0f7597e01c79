const NEWLINE = 0x0a;
const RETURN = 0x0d;
const MIN_BUFFER = 4096;
/** A larger buffer is not reused for the next line. */
const MAX_KEPT_BUFFER = 1024 * 1024;

export interface LineEvents {
  /** A line without its end (`\n` or `\r\n`). The bytes are valid during the call only. */
  line(bytes: Uint8Array): void;
  /** The first `limit` bytes of a longer line. The rest, up to the next newline, is discarded. */
  tooLong(head: Uint8Array): void;
}

/**
 * Splits a byte stream into lines of at most `limit` bytes. A line is copied once if it comes in pieces, otherwise never.
 */
export function createLines(limit: number, events: LineEvents) {
  let held = new Uint8Array(0);
  let length = 0;
  let discarding = false;

  /** Buffers one byte more than the limit: the `\r` of a line of exactly that length. */
  function hold(bytes: Uint8Array): void {
    const needed = Math.min(length + bytes.length, limit + 1);
    if (needed > held.length) {
      const larger = new Uint8Array(Math.min(Math.max(needed, held.length * 2, MIN_BUFFER), limit + 1));
      larger.set(held.subarray(0, length));
      held = larger;
    }
    held.set(bytes.subarray(0, needed - length), length);
    length = needed;
  }

  function take(piece: Uint8Array): Uint8Array {
    if (length === 0) return piece;
    hold(piece);
    return held.subarray(0, length);
  }

  function forget(): void {
    length = 0;
    if (held.length > MAX_KEPT_BUFFER) held = new Uint8Array(0);
  }

  function finish(last: Uint8Array): void {
    if (!discarding) {
      const overflows = length + last.length > limit + 1;
      const whole = take(last);
      const bytes = whole.at(-1) === RETURN && !overflows ? whole.subarray(0, -1) : whole;
      if (bytes.length > limit) events.tooLong(bytes.subarray(0, limit));
      else events.line(bytes);
    }
    discarding = false;
    forget();
  }

  return {
    push(bytes: Uint8Array): void {
      let from = 0;
      for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, from)) {
        finish(bytes.subarray(from, at));
        from = at + 1;
      }
      if (discarding || from === bytes.length) return;
      const rest = bytes.subarray(from);
      if (length + rest.length <= limit + 1) {
        hold(rest);
        return;
      }
      events.tooLong(take(rest).subarray(0, limit));
      discarding = true;
      forget();
    },

    /** Ends the stream. An unterminated rest is a line too. */
    end(): void {
      if (length > 0) finish(new Uint8Array(0));
      discarding = false;
    },
  };
}
