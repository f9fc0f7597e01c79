import { parseJson } from './json.ts';

/** The position of a member of a JSON object in its text. */
export interface TextMember {
  key: string;
  /** Start of the member (its key's quote), start of its value, and end of both. */
  start: number;
  valueStart: number;
  end: number;
}

const QUOTE = 34;
const COMMA = 44;
const BACKSLASH = 92;
/** Codes of braces; those of brackets have the bit of 32 unset. */
const OPEN = 123;
const CLOSE = 125;

const isSpace = (code: number): boolean => code === 32 || code === 10 || code === 13 || code === 9;

function afterSpace(text: string, at: number): number {
  let next = at;
  while (isSpace(text.charCodeAt(next))) next++;
  return next;
}

/** Returns the index after the string literal at `at`, or -1 if no string begins there or it is cut off. */
function afterString(text: string, at: number): number {
  if (text.charCodeAt(at) !== QUOTE) return -1;
  const close = text.indexOf('"', at + 1);
  if (close < 0 || text.charCodeAt(close - 1) !== BACKSLASH) return close < 0 ? -1 : close + 1;
  for (let next = text.indexOf('\\', at + 1); next < text.length; next++) {
    const code = text.charCodeAt(next);
    if (code === BACKSLASH) next++;
    else if (code === QUOTE) return next + 1;
  }
  return -1;
}

/** The index after the value at `at`; -1 if it is cut. Brackets are counted, not matched. */
function afterValue(text: string, at: number): number {
  if (text.charCodeAt(at) === QUOTE) return afterString(text, at);
  let depth = 0;
  for (let next = at; next < text.length; next++) {
    const code = text.charCodeAt(next);
    if (code === QUOTE) {
      next = afterString(text, next) - 1;
      if (next < 0) return -1;
    }
    // Brackets and braces differ by one bit.
    else if ((code | 32) === OPEN) depth++;
    else if (depth === 0 && (code === COMMA || code === CLOSE)) {
      while (isSpace(text.charCodeAt(next - 1))) next--;
      return next;
    } else if ((code | 32) === CLOSE && --depth === 0) return next + 1;
  }
  return -1;
}

/**
 * The members of the object that begins at or after `at` (blanks are skipped), without parsing their values, so that a
 * value that is forwarded as text keeps its number formats and escapes. Ends at the first member that is cut or
 * invalid.
 */
export function membersOf(text: string, at = 0): TextMember[] {
  const members: TextMember[] = [];
  let next = afterSpace(text, at);
  if (text[next] !== '{') return members;
  do {
    const start = afterSpace(text, next + 1);
    const keyEnd = afterString(text, start);
    const colon = afterSpace(text, keyEnd);
    if (keyEnd < 0 || text[colon] !== ':') break;
    const valueStart = afterSpace(text, colon + 1);
    const end = afterValue(text, valueStart);
    if (end < 0) break;
    const raw = text.slice(start + 1, keyEnd - 1);
    const key = raw.includes('\\') ? parseJson(text.slice(start, keyEnd)) : raw;
    if (typeof key === 'string') members.push({ key, start, valueStart, end });
    next = afterSpace(text, end);
  } while (text[next] === ',');
  return members;
}

/** The last member of that name, like `JSON.parse`. */
export const memberNamed = (members: readonly TextMember[], key: string): TextMember | undefined =>
  members.findLast((member) => member.key === key);

/** The text of the last member of that name of the object in `text`. */
export function textOf(text: string, key: string): string | undefined {
  const member = memberNamed(membersOf(text), key);
  return member && text.slice(member.valueStart, member.end);
}

/** The text of an object without the members that `isDropped` accepts. */
export function withoutMembers(text: string, isDropped: (key: string) => boolean): string {
  const members = membersOf(text);
  if (!members.some(({ key }) => isDropped(key))) return text;
  const remaining = members.filter(({ key }) => !isDropped(key)).map(({ start, end }) => text.slice(start, end));
  return `{${remaining.join(',')}}`;
}

/** Characters of a piece: it takes some milliseconds to make. */
const PIECE = 1024 * 1024;

/**
 * The text of a JSON value on one line, without blanks between its tokens, in pieces that end between characters.
 * `text` must have passed `JSON.parse`.
 */
export function* compactedPieces(text: string, length = PIECE): Generator<string> {
  let inString = false;
  let escaped = false;
  for (let start = 0, end = 0; start < text.length; start = end) {
    end = Math.min(start + length, text.length);
    if (isHighSurrogate(text.charCodeAt(end - 1)) && end < text.length) end++;
    let output = '';
    let from = start;
    for (let at = start; at < end; at++) {
      const code = text.charCodeAt(at);
      if (inString) {
        if (escaped) escaped = false;
        else if (code === BACKSLASH) escaped = true;
        else if (code === QUOTE) inString = false;
      } else if (code === QUOTE) inString = true;
      else if (isSpace(code)) {
        if (at > from) output += text.slice(from, at);
        from = at + 1;
      }
    }
    yield output + text.slice(from, end);
  }
}

const isHighSurrogate = (code: number): boolean => (code & 0xfc00) === 0xd800;
