import { chars, createRecorder, cut, SUMMARY } from '../dispatch/recorder.ts';
import { isObject } from '../kit/json.ts';
import { mentionsSecret } from '../kit/secret-names.ts';

const PRIVATE = new Set(['text', 'body', 'data', 'query']);

const isPrivateKey = (key: string): boolean => PRIVATE.has(key.toLowerCase());

/** The text that replaces a whole value because of its key; undefined if the value must be looked into. */
function placeholder(key: string, value: unknown): string | undefined {
  if (mentionsSecret(key)) return '[redacted]';
  if (key.toLowerCase() === 'extras') return typeof value === 'string' ? chars(value) : '[object]';
  return undefined;
}

const recorder = createRecorder({ placeholder, isPrivateKey });

/** A copy of a caller's parameters for the record: no secrets and no private content (contract 03 §6). */
export const redact = recorder.redact;

/** One line of JSON of at most 500 characters (contract 03 §6). */
export function summarise(result: unknown, isPrivate: boolean): string | null {
  return isPrivate && result !== undefined && result !== null ? cut(outline(result)) : recorder.summarise(result);
}

/** The outline of a private result: names and counts, no values. */
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
