import type { Size } from './names.ts';

/** Characters with an effect other than printing: ESC, shifts, CAN, SUB and 8-bit controls. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters
const CONTROL = /[\x0e\x0f\x18\x1a\x1b\x80-\x9f]/;
/** A text that begins with ESC and a complete sequence. */
const WHOLE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: as above
  /^\x1b(?:\[[\x20-\x3f]*[\x40-\x7e]|\][^\x07]*\x07|[\x20-\x2f]+[\x30-\x7e]|[\x30-\x4f\x51-\x57\x59\x5a\\\x60-\x7e])/;
/** Sequences that set or reset the scrolling margins, or switch to the screen with other margins. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above
const MARGINS = /\x1b(?:\[(?<margins>[\d;]*)r|(?<reset>c)|\[\?(?:[\d;]*;)?(?:47|1047|1049)(?<screen>[hl]))/g;
const MAX_CARRY = 256;

/** Plain text, which only prints and scrolls, in pieces as received. */
interface Run {
  kind: 'run';
  pieces: string[];
  /** Height of the screen that prints it. */
  rows: number;
  /** True if the full screen scrolls, without margins. */
  trimmable: boolean;
}
type Item = Run | { kind: 'raw'; text: string } | { kind: 'resize'; size: Size };

/**
 * Output that a terminal has yet to parse, in order. Only the last lines of a long plain run can ever be seen: `trim`
 * drops the others without changing the parsed screen and its `scrollback` lines.
 */
export function createBacklog(scrollback: number, size: Size) {
  const items: Item[] = [];
  let rows = size.rows;
  let length = 0;
  /** True if the parser is between two sequences after the last text. */
  let inGround = true;
  const hasMargins = { h: false, l: false };
  let screen: 'h' | 'l' = 'l';
  let carry = '';

  function addPlain(text: string): void {
    const last = items.at(-1);
    if (last?.kind === 'run') last.pieces.push(text);
    else items.push({ kind: 'run', pieces: [text], rows, trimmable: !hasMargins[screen] });
  }

  function addRaw(text: string): void {
    items.push({ kind: 'raw', text });
    const whole = carry + text;
    for (const { groups } of whole.matchAll(MARGINS)) {
      if (groups?.screen) screen = groups.screen as 'h' | 'l';
      else if (groups?.reset) Object.assign(hasMargins, { h: false, l: false });
      else hasMargins[screen] = groups?.margins !== '' && groups?.margins !== `1;${rows}`;
    }
    const last = whole.lastIndexOf('\x1b');
    const tail = last < 0 ? '' : whole.slice(last);
    // After an 8-bit control or CAN the parser's state is unknown, so nothing counts as plain until the next ESC sequence.
    inGround = WHOLE.test(tail) && !CONTROL.test(tail.slice(1));
    carry = inGround ? '' : tail.slice(0, MAX_CARRY);
  }

  function trimRun(run: Run): void {
    // Enough lines to cross the screen, and to push its old content out of the scrollback.
    const needed = scrollback + 2 * run.rows + 2;
    let lines = 0;
    let firstKept = run.pieces.length;
    while (firstKept > 0 && lines < needed) lines += count(run.pieces[--firstKept] as string, '\r\n');
    const first = run.pieces[firstKept];
    if (lines < needed || first === undefined) return;
    // Cut before a line end, so that the next line starts at the left margin regardless of the cursor position.
    const rest = first.slice(first.indexOf('\r\n'));
    for (const piece of run.pieces.slice(0, firstKept)) length -= piece.length;
    length -= first.length - rest.length;
    run.pieces = [rest, ...run.pieces.slice(firstKept + 1)];
  }

  return {
    /** Number of unparsed characters. */
    get length() {
      return length;
    },
    get isEmpty() {
      return items.length === 0;
    },
    text(text: string): void {
      length += text.length;
      if (inGround && !CONTROL.test(text)) addPlain(text);
      else addRaw(text);
    },
    resize(size: Size): void {
      rows = size.rows;
      // A resize resets the margins. Ignoring that only makes `trim` drop less.
      items.push({ kind: 'resize', size });
    },
    trim(): void {
      for (const item of items) if (item.kind === 'run' && item.trimmable) trimRun(item);
    },
    /** Removes and returns the next item: a resize, or roughly up to `limit` characters of text. */
    take(limit: number): string | Size | undefined {
      const first = items[0];
      if (first?.kind === 'resize') {
        items.shift();
        return first.size;
      }
      let text = '';
      while (text.length < limit) {
        const item = items[0];
        if (item === undefined || item.kind === 'resize') break;
        if (item.kind === 'raw') {
          text += item.text;
          items.shift();
        } else {
          text += item.pieces.shift() ?? '';
          if (item.pieces.length === 0) items.shift();
        }
      }
      length -= text.length;
      return text === '' ? undefined : text;
    },
    /** All of the unparsed text, which stays. */
    peek: (): string =>
      items.map((item) => (item.kind === 'run' ? item.pieces.join('') : item.kind === 'raw' ? item.text : '')).join(''),
    clear(): void {
      items.length = 0;
      length = 0;
    },
  };
}

function count(text: string, part: string): number {
  let found = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) found++;
  return found;
}
