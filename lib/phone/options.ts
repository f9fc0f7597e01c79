/** Longer than any run of closing marks; the rest of a text is irrelevant. */
const TAIL = 8;
/** Characters of a listed option before it is trimmed; a longer one cannot be an answer. */
const MAX_RAW = 200;

/** Maximum answers of a message (contract 09 §10), so that a longer list cannot be offered. */
export const MAX_OPTIONS = 4;

/** `1.`, `1)`, `(1)`, `a)`, `(a)` between words, and bullets at the beginning of a line. */
const NUMBERED = /(?:^|\s)(?:\(?([1-9]\d?)[.)]|\(?([a-z])\))[ \t]+(?=\S)/gi;
const BULLET = /(?:^|\n)[ \t]*[-*•][ \t]+(?=\S)/g;

/** A position in a text where an entry of a list begins. */
interface Marker {
  /** Counts from 1. */
  ordinal: number;
  /** Start of the marker, and start of the entry's text. */
  from: number;
  to: number;
}

/**
 * `options`: the possible answers, empty if there are too many. `list`: the text contains a list, but its entries may not be
 * answers.
 */
export type Options = { kind: 'options'; options: string[] } | { kind: 'list' } | { kind: 'none' };

/** True if a text ends with a question mark, closing marks aside. */
export const endsAsking = (text: string): boolean => /[?？؟]\p{P}*$/u.test(text.trimEnd().slice(-TAIL));

/** True if a text ends like a finished sentence, so that a list after it is a report. */
const endsStating = (text: string): boolean => /[.!…。！]\p{P}*$/u.test(text.trimEnd().slice(-TAIL));

/**
 * The options that a message lists, such as `Which one? 1. red 2. blue` (contract 09 §10). Of several lists, the last one
 * counts. It lists options if a question precedes or ends it, or if nothing suggests a report: no finished sentence before
 * it or in it, and no text after it. Takes time proportional to the length.
 */
export function optionsIn(text: string): Options {
  const numbered = [...text.matchAll(NUMBERED)];
  const digits = lastList(numbered.flatMap((match) => markerOf(match, Number(match[1]))));
  const letters = () => lastList(numbered.flatMap((match) => markerOf(match, ordinalOf(match[2]))));
  const list = digits.length > 0 ? digits : letters();
  if (list.length > 0) return readList(text, list, false);
  const bullets = [...text.matchAll(BULLET)].flatMap((match, at) => markerOf(match, at + 1));
  return bullets.length > 1 ? readList(text, bullets, true) : { kind: 'none' };
}

const ordinalOf = (letter: string | undefined): number =>
  letter === undefined ? Number.NaN : letter.toLowerCase().charCodeAt(0) - 96;

const markerOf = ({ index, 0: { length } }: RegExpExecArray, ordinal: number): Marker[] =>
  Number.isNaN(ordinal) ? [] : [{ ordinal, from: index, to: index + length }];

/** The last list that counts up from 1, with at least two entries. A number out of order belongs to the text of an entry. */
function lastList(markers: readonly Marker[]): Marker[] {
  let last: Marker[] = [];
  let current: Marker[] = [];
  for (const marker of markers) {
    if (marker.ordinal === 1) current = [marker];
    else if (current.length > 0 && marker.ordinal === current.length + 1) current.push(marker);
    else continue;
    if (current.length > 1) last = current;
  }
  return last;
}

function readList(text: string, list: readonly Marker[], isBulleted: boolean): Options {
  const lead = text.slice(0, list[0]?.from ?? 0).trim();
  if (list.length > MAX_OPTIONS) return endsAsking(lead) ? { kind: 'options', options: [] } : { kind: 'list' };
  // An entry is one line; any text after its line explains it, or follows the list.
  const entries = list.map(({ to }, at) => (text.slice(to, list[at + 1]?.from).split('\n', 1)[0] as string).trim());
  const last = entries.at(-1) as string;
  const hasTail = text.slice((list.at(-1) as Marker).to).trim() !== last;
  const areSentences = entries.slice(0, -1).some(endsStating);
  const isAsked = endsAsking(lead) || (hasTail ? lead === '' && !areSentences && endsAsking(text) : endsAsking(last));
  const isReport = isBulleted || hasTail || areSentences || endsStating(lead);
  if (!isAsked && isReport) return { kind: 'list' };
  return { kind: 'options', options: entries.map(optionOf) };
}

/** An entry without emphasis, and without the words that join it to the next one. */
function optionOf(entry: string): string {
  if (entry.length > MAX_RAW) return entry;
  return entry
    .replaceAll(/\*\*|`/g, '')
    .replace(/[\s,;.?？؟]+$/, '')
    .replace(/,?\s+or$/i, '')
    .trim();
}
