import { isObject } from '../socket/envelope.ts';

const SECRET = new Set([
  'password',
  'token',
  'secret',
  'otp',
  'bearer',
  'passwd',
  'authorization',
  'cookie',
  'apikey',
  'pin',
]);
/** Nearly every key is none of these, and is not taken apart. */
const MAYBE_SECRET = /pass|token|secret|otp|bearer|auth|cookie|api|pin/i;
const WORD = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+/g;
const PRIVATE = new Set(['text', 'body', 'data', 'query']);

const MAX_DEPTH = 8;
const MAX_ITEMS = 50;
const MAX_TEXT = 200;
const SUMMARY = 500;

/** Whether what stands under a key is a secret by its name (contract 03 §6). */
export function isSecretKey(key: string): boolean {
  if (!MAYBE_SECRET.test(key)) return false;
  if (SECRET.has(key.toLowerCase())) return true;
  const words = (key.match(WORD) ?? []).map((word) => word.toLowerCase());
  return words.some((word, at) => SECRET.has(word) || (word === 'api' && words[at + 1] === 'key'));
}

const isPrivateKey = (key: string): boolean => PRIVATE.has(key.toLowerCase());
const chars = (text: string): string => `[${text.length} chars]`;
const shorten = (text: string): string => (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}...` : text);

/** What stands for a value of its key without being looked into; undefined where it must be. */
function placeholder(key: string, value: unknown): string | undefined {
  if (isSecretKey(key)) return '[redacted]';
  if (key.toLowerCase() === 'extras') return typeof value === 'string' ? chars(value) : '[object]';
  return undefined;
}

/**
 * A copy of what a caller sent, for the record: no secrets, no private content, and not more than a screenful of it,
 * however much was sent (contract 03 §6).
 */
export function redact(value: Readonly<Record<string, unknown>>): Record<string, unknown> {
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
      // `__proto__` is a key like any other.
      Object.defineProperty(to, shorten(key), { value: shown, enumerable: true, configurable: true, writable: true });
    }
    return to;
  };
  return copyObject(value, false, 0);
}

/** One line of JSON of at most 500 characters. Stops there: a result may be megabytes (contract 03 §6). */
export function summarise(result: unknown, isPrivate: boolean): string | null {
  if (result === undefined || result === null) return null;
  const text = isPrivate ? outline(result) : write(result);
  return text.length > SUMMARY ? `${text.slice(0, SUMMARY - 3).toWellFormed()}...` : text;
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

/** Names and counts, no values. */
function outline(result: unknown): string {
  if (!isObject(result)) return JSON.stringify(count(result));
  let text = '{';
  let separator = '';
  for (const key in result) {
    if (text.length > SUMMARY) break;
    text += `${separator}${JSON.stringify(key.slice(0, SUMMARY + 1))}:${JSON.stringify(count(result[key]))}`;
    separator = ',';
  }
  return `${text}}`;
}

function count(value: unknown): string | null {
  if (value === null) return null;
  if (typeof value === 'string') return chars(value);
  if (Array.isArray(value)) return `[${value.length} items]`;
  return typeof value === 'object' ? '[object]' : `[${typeof value}]`;
}
