/** A prompt for a line of text. */
export interface LineRequest {
  /** Label before the text, such as `Reply to Kitchen`. */
  label: string;
  /** Gets the text once Enter is pressed, unless it is blank. */
  onText(text: string): void;
  /** Called when the line closes, for whatever reason. */
  onClose?(): void;
}

export type LinePrompt = ReturnType<typeof createLinePrompt>;

const MAX_LINE = 4096;

/**
 * Reads one line of text, shown above the status line: Enter sends it, Esc discards it. `onChange` is called when the line
 * has changed.
 */
export function createLinePrompt(onChange: () => void) {
  let request: LineRequest | null = null;
  let written = '';

  function close(): void {
    const closing = request;
    request = null;
    closing?.onClose?.();
    onChange();
  }

  function send(): void {
    const { onText } = request as LineRequest;
    const text = written;
    close();
    if (text.trim() !== '') onText(text);
  }

  return {
    get isOpen() {
      return request !== null;
    },
    /** The text of the line; null while closed. */
    line: () => (request ? `${request.label}: ${written}_   (Enter sends, Esc discards)` : null),
    open(next: LineRequest): void {
      request = next;
      written = '';
      onChange();
    },
    key(key: string) {
      if (key === '\r' || key === '\n') return send();
      if (key === '\u0003' || key === '\u0004') return close();
      if (key === '\u007f' || key === '\b') written = [...written].slice(0, -1).join('');
      else if (key >= ' ' && written.length < MAX_LINE) written += key;
      onChange();
    },
    cancel: close,
  };
}
