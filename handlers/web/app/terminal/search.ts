/** A position in the buffer: absolute row, column, and cells. */
export interface Match {
  row: number;
  column: number;
  length: number;
}

/** The part of a terminal's buffer that a search reads. */
export interface SearchBuffer {
  readonly length: number;
  getLine(row: number): SearchLine | undefined;
}

interface SearchLine {
  readonly length: number;
  getCell(column: number): { getChars(): string; getWidth(): number } | undefined;
}

/**
 * The next match of a text in a buffer, before or after a position, ignoring case; wraps around. Matches do not span lines.
 */
export function findText(
  buffer: SearchBuffer,
  text: string,
  from: Match | undefined,
  direction: 'up' | 'down',
): Match | undefined {
  const wanted = text.toLowerCase();
  if (wanted === '') return undefined;
  const start = from ?? { row: buffer.length - 1, column: Number.POSITIVE_INFINITY, length: 0 };
  const step = direction === 'up' ? -1 : 1;
  // The row of the start is searched twice: before and after it.
  for (let distance = 0; distance <= buffer.length; distance++) {
    const row = (start.row + step * distance + buffer.length * 2) % buffer.length;
    const matches = matchesIn(buffer, row, wanted);
    const isFirst = distance === 0;
    const isLast = distance === buffer.length;
    const isBefore = ({ column }: Match) => column < start.column;
    const isAfter = ({ column }: Match) => column > start.column;
    const isAhead = direction === 'up' ? isBefore : isAfter;
    const fitting = matches.filter((match) => (isFirst ? isAhead(match) : isLast ? !isAhead(match) : true));
    const found = direction === 'up' ? fitting.at(-1) : fitting[0];
    if (found) return found;
  }
  return undefined;
}

function matchesIn(buffer: SearchBuffer, row: number, wanted: string): Match[] {
  const { text, columns } = readLine(buffer.getLine(row));
  const matches: Match[] = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + 1)) {
    const column = columns[at] as number;
    matches.push({ row, column, length: (columns[at + wanted.length] as number) - column });
  }
  return matches;
}

/** The text of a line in lower case, and the column of each of its characters and of its end. */
function readLine(line: SearchLine | undefined): { text: string; columns: number[] } {
  let text = '';
  const columns: number[] = [];
  let column = 0;
  for (; line && column < line.length; ) {
    const cell = line.getCell(column);
    const characters = (cell?.getChars() || ' ').toLowerCase();
    for (let unit = 0; unit < characters.length; unit++) columns.push(column);
    text += characters;
    column += cell?.getWidth() || 1;
  }
  columns.push(column);
  return { text, columns };
}

/** Characters at which a word ends, for a selection by a finger. */
const BREAK = /[\s"'`()[\]{}<>|;,]/;

/** The word at a cell, or only the cell if it is not part of a word. */
export function wordAt(line: SearchLine | undefined, column: number): { column: number; length: number } {
  const { text, columns } = readLine(line);
  const at = columns.findLastIndex((start) => start <= column);
  const breaks = (index: number) => index < 0 || index >= text.length || BREAK.test(text[index] as string);
  if (at < 0 || breaks(at)) return { column, length: 1 };
  let first = at;
  let end = at + 1;
  while (!breaks(first - 1)) first--;
  while (!breaks(end)) end++;
  const start = columns[first] as number;
  return { column: start, length: (columns[end] as number) - start };
}
