/** Rules about the parts of a command that must not be recorded. */
export interface RecordRules {
  /** The text that replaces a whole value because of its key; undefined if the value must be looked into. */
  placeholder(key: string, value: unknown): string | undefined;
  /** True if only the length of texts under this key is recorded. */
  isPrivateKey(key: string): boolean;
}

const MAX_DEPTH = 8;
const MAX_ITEMS = 50;
const MAX_TEXT = 200;
/** Characters of a summary. */
export const SUMMARY = 500;

/** The record of a private text. */
export const chars = (text: string): string => `[${text.length} chars]`;

/** The start of a text, as a copy: in V8 a plain slice keeps the whole text in memory for as long as it lives. */
export const truncated = (text: string, length: number): string =>
  text.length > length ? JSON.parse(JSON.stringify(text.slice(0, length))) : text;

const shorten = (text: string): string => (text.length > MAX_TEXT ? `${truncated(text, MAX_TEXT)}...` : text);

/** A summary of at most 500 characters. */
export const cut = (text: string): string =>
  text.length > SUMMARY ? `${text.slice(0, SUMMARY - 3).toWellFormed()}...` : text;

/** Records commands and their results under the given rules. */
export function createRecorder({ placeholder, isPrivateKey }: RecordRules) {
  /** A copy of a caller's parameters: without forbidden values, and at most a screenful, however much was sent. */
  function redact(value: Readonly<Record<string, unknown>>): Record<string, unknown> {
    let items = MAX_ITEMS;
    const copy = (value: unknown, isPrivate: boolean, depth: number): unknown => {
      if (typeof value === 'string') return isPrivate ? chars(value) : shorten(value);
      if (typeof value !== 'object' || value === null) return value;
      if (depth >= MAX_DEPTH) return Array.isArray(value) ? '[array]' : '[object]';
      if (Array.isArray(value)) {
        const copies: unknown[] = [];
        for (let at = 0; at < value.length && items-- > 0; at++) copies.push(copy(value[at], isPrivate, depth + 1));
        return copies;
      }
      return copyObject(value as Record<string, unknown>, isPrivate, depth);
    };
    const copyObject = (from: Readonly<Record<string, unknown>>, isPrivate: boolean, depth: number) => {
      const to: Record<string, unknown> = {};
      for (const key in from) {
        if (items-- <= 0) break;
        const inner = isPrivate || isPrivateKey(key);
        const shown = placeholder(key, from[key]) ?? copy(from[key], inner, depth + 1);
        // Assignment would set the prototype for the key `__proto__`.
        Object.defineProperty(to, shorten(key), { value: shown, enumerable: true, configurable: true, writable: true });
      }
      return to;
    };
    return copyObject(value, false, 0);
  }

  function write(root: unknown): string {
    let text = '';
    const put = (value: unknown, isPrivate: boolean, depth: number): void => {
      if (typeof value === 'string') text += JSON.stringify(isPrivate ? chars(value) : value.slice(0, SUMMARY + 1));
      else if (typeof value !== 'object' || value === null) text += JSON.stringify(value);
      else if (depth >= MAX_DEPTH) text += Array.isArray(value) ? '"[array]"' : '"[object]"';
      else if (Array.isArray(value)) {
        text += '[';
        for (let at = 0; at < value.length && text.length <= SUMMARY; at++) {
          if (at > 0) text += ',';
          put(value[at], isPrivate, depth + 1);
        }
        text += ']';
      } else putObject(value as Record<string, unknown>, isPrivate, depth);
    };
    const putObject = (value: Record<string, unknown>, isPrivate: boolean, depth: number): void => {
      text += '{';
      let separator = '';
      for (const key in value) {
        if (text.length > SUMMARY) break;
        text += `${separator}${JSON.stringify(key.slice(0, SUMMARY + 1))}:`;
        separator = ',';
        const shown = placeholder(key, value[key]);
        if (shown !== undefined) text += JSON.stringify(shown);
        else put(value[key], isPrivate || isPrivateKey(key), depth + 1);
      }
      text += '}';
    };
    put(root, false, 0);
    return text;
  }

  /**
   * One line of JSON of at most 500 characters, or null if there is no result. Reads no more than that, since a result
   * may be megabytes.
   */
  function summarise(result: unknown): string | null {
    return result === undefined || result === null ? null : cut(write(result));
  }

  return { redact, summarise };
}
