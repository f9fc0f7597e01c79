/** Characters that a client may choose as its window (contract 09 §1). */
export const MIN_WINDOW = 16_384;
export const MAX_WINDOW = 1_048_576;

/** True if a client may choose this window. */
export const isWindow = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= MIN_WINDOW && (value as number) <= MAX_WINDOW;

/**
 * Paces output by the client's rendering: never more than `window` characters (UTF-16 code units) are sent and
 * unacknowledged (contract 09 §1). Without a window, everything is sent. Counts from zero, so each attach needs a new pacing.
 */
export function createPacing(window = Number.POSITIVE_INFINITY) {
  let sent = 0;
  let rendered = 0;
  let held = '';
  let isReading = true;

  /** Removes the held text that fits into the window, without splitting a surrogate pair. */
  function take(): string {
    let end = Math.min(held.length, window - (sent - rendered));
    if (end < held.length && isHighSurrogate(held.charCodeAt(end - 1))) end--;
    const text = held.slice(0, end);
    held = held.slice(end);
    sent += end;
    if (sent - rendered + held.length >= window) isReading = false;
    return text;
  }

  return {
    /** True to keep reading: until `window` characters wait, and again once less than a quarter is unacknowledged. */
    get isReading() {
      return isReading;
    },
    /** Adds output. Returns the text to send now. */
    push(text: string): string {
      held += text;
      return take();
    },
    /** Handles the total that the client has rendered; ignores impossible values. Returns the text to send now. */
    acknowledge(chars: unknown): string {
      if (!Number.isInteger(chars) || (chars as number) < rendered || (chars as number) > sent) return '';
      rendered = chars as number;
      if (sent - rendered < window / 4) isReading = true;
      return take();
    },
    /** Removes and returns the held text, at the end of the attach. */
    rest(): string {
      const text = held;
      held = '';
      return text;
    },
  };
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;
