/** The position of a member of a JSON object in its text. */
export interface TextMember {
  key: string;
  /** Start of the member (its key's quote), start of its value, and end of both. */
  start: number;
  valueStart: number;
  end: number;
}

const QUOTE = 34;
const BACKSLASH = 92;

/** The index after the string whose opening quote is at `at`. Finds the end of one without escapes by a native search. */
function afterString(text: string, at: number): number {
  const close = text.indexOf('"', at + 1);
  if (text.charCodeAt(close - 1) !== BACKSLASH) return close + 1;
  for (let next = text.indexOf('\\', at + 1); ; next++) {
    const code = text.charCodeAt(next);
    if (code === BACKSLASH) next++;
    else if (code === QUOTE) return next + 1;
  }
}

const isSpace = (code: number): boolean => code === 32 || code === 10 || code === 13 || code === 9;

function afterSpace(text: string, at: number): number {
  while (isSpace(text.charCodeAt(at))) at++;
  return at;
}

/** The index after the value that begins at `at`. */
function afterValue(text: string, at: number): number {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return afterString(text, at);
  if (first !== 123 && first !== 91) {
    while (at < text.length) {
      const code = text.charCodeAt(at);
      if (code === 44 || code === 125 || code === 93 || isSpace(code)) break;
      at++;
    }
    return at;
  }
  let depth = 0;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = afterString(text, at);
      continue;
    }
    at++;
    // Brackets and braces differ by one bit.
    const bracket = code | 32;
    if (bracket === 123) depth++;
    else if (bracket === 125 && --depth === 0) return at;
  }
}

/**
 * The members of the object that begins at or after `at` (blanks are skipped), without parsing their values: a value that
 * is forwarded as text keeps its number formats and escapes. `text` must have passed `JSON.parse`.
 */
export function membersOf(text: string, at = 0): TextMember[] {
  const members: TextMember[] = [];
  let next = afterSpace(text, afterSpace(text, at) + 1);
  while (text.charCodeAt(next) !== 125) {
    const keyEnd = afterString(text, next);
    const raw = text.slice(next + 1, keyEnd - 1);
    const valueStart = afterSpace(text, afterSpace(text, keyEnd) + 1);
    const end = afterValue(text, valueStart);
    members.push({
      key: raw.includes('\\') ? JSON.parse(text.slice(next, keyEnd)) : raw,
      start: next,
      valueStart,
      end,
    });
    next = afterSpace(text, end);
    if (text.charCodeAt(next) === 44) next = afterSpace(text, next + 1);
  }
  return members;
}

/** The last member of that name, which is the one that `JSON.parse` takes. */
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
  const kept = members.filter(({ key }) => !isDropped(key)).map(({ start, end }) => text.slice(start, end));
  return `{${kept.join(',')}}`;
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
    let kept = '';
    let from = start;
    for (let at = start; at < end; at++) {
      const code = text.charCodeAt(at);
      if (inString) {
        if (escaped) escaped = false;
        else if (code === BACKSLASH) escaped = true;
        else if (code === QUOTE) inString = false;
      } else if (code === QUOTE) inString = true;
      else if (isSpace(code)) {
        if (at > from) kept += text.slice(from, at);
        from = at + 1;
      }
    }
    yield kept + text.slice(from, end);
  }
}

const isHighSurrogate = (code: number): boolean => (code & 0xfc00) === 0xd800;
