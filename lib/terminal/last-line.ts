/** Characters of a line in a list (contract 09 §1). */
const MAX_LINE = 120;
/** Characters of output to examine: the last ones of each text, and of an unfinished line. */
const MAX_RAW = 1024;
/** Escape sequences, including unfinished ones, with the text of string sequences. */
const SEQUENCE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters
  /\x1b(?:\[[\x20-\x3f]*[\x40-\x7e]?|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)?|[\x20-\x2f]*[\x30-\x7e]?)/g;

/** The last non-blank line that a program has printed. The cost per output is constant. */
export function createLastLine() {
  let unfinished = '';
  let line = '';

  return {
    get text() {
      return line;
    },
    push(text: string): void {
      const lines = (unfinished + text.slice(-MAX_RAW)).slice(-MAX_RAW).split('\n');
      unfinished = lines.at(-1) as string;
      for (let at = lines.length - 1; at >= 0; at--) {
        const shown = shownLine(lines[at] as string);
        if (shown === '') continue;
        line = shown;
        return;
      }
    },
  };
}

/** Returns the last non-blank line of a screen; empty for a blank screen. */
export const lastLineOf = (screen: string): string => {
  const line = createLastLine();
  line.push(screen.trimEnd());
  return line.text;
};

/**
 * The visible text of a line: without sequences and control characters, and after a carriage return, only what overwrote it.
 */
function shownLine(raw: string): string {
  const parts = raw.replace(SEQUENCE, '').split('\r');
  const shown = parts.findLast((part) => part.trim() !== '') ?? '';
  return clip(shown.replace(/\p{Cc}+/gu, '').trim());
}

/** The first 120 characters (UTF-16 code units), without half of a surrogate pair. */
const clip = (text: string): string => text.slice(0, MAX_LINE).replace(/[\ud800-\udbff]$/, '');
