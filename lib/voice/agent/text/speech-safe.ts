import { cutText } from '../../../chat/preview.ts';
import { isObject, parseJson } from '../../../kit/json.ts';
import { isPrintable } from '../../../kit/text.ts';

/** Characters of an answer in the result of a tool. */
export const MAX_TOOL_ANSWER = 1800;
/** Characters of an answer that is delivered. */
export const MAX_DELIVERED_ANSWER = 1400;
const MAX_OUTPUT = 700;
const MAX_KEYS = 6;
/** Characters of a spoken name. */
const MAX_KEY = 60;
/** A longer word of ASCII is not a word but encoded bytes, a hash, or a URL with a query. */
const MAX_WORD = 120;
const KEPT_OF_WORD = 24;
/** Characters of an answer to process, so that a huge one costs no more than a large one. */
const MAX_READ = 256 * 1024;

const MAX_HEADING = 60;
/** A line that begins a list of sources, and the lines that may belong to one. */
const SOURCES_HEADING = /^(?:#{1,6}\s*|[*_]{1,2})?(?:sources?|references|citations)\s*:?\s*(?:[*_]{1,2})?:?\s*$/i;
const SOURCE_LINE = /^(?:[-*•]|\[?\^?\d{1,3}[\].):]|<?https?:\/\/)/;
/** Sources on a single line. */
const INLINE_SOURCES = /^(?:sources?|references|citations)\s*:\s*(?:\[|<?https?:\/\/)/i;
const CITATION_MARK = /【[^】【]{0,200}】|\[\^?\d{1,3}\](?!\()/g;

/** True if an answer is the JSON text of an object or a list: it is described, not read out (contract 06 §7.1). */
export const isJsonAnswer = (answer: string): boolean => jsonOf(answer) !== undefined;

/**
 * An answer in a form that can be spoken, of at most `limit` characters (contract 06 §7.6): without lists of sources, in one
 * line, and JSON as a sentence about it. A cut text ends in `…`.
 */
export function speechSafe(answer: string, limit: number): string {
  const json = jsonOf(answer);
  if (json !== undefined) return cutText(oneLine(describe(json)), limit);
  const text = answer.slice(0, MAX_READ);
  return cutText(oneLine(withoutSources(text).replace(CITATION_MARK, '')) || oneLine(text), limit);
}

/** White space collapsed, and machine-made words shortened. */
const oneLine = (text: string): string =>
  text
    .split(/\s+/)
    .filter((word) => word !== '')
    .map((word) => (word.length > MAX_WORD && isPrintable(word) ? cutText(word, KEPT_OF_WORD) : word))
    .join(' ');

function jsonOf(answer: string): object | undefined {
  const text = withoutFence(answer.trim());
  if (!/^[[{]/.test(text) || !/[\]}]$/.test(text)) return undefined;
  const value = parseJson(text);
  return typeof value === 'object' && value !== null ? value : undefined;
}

/** The content of a text that is a single fenced block. */
function withoutFence(text: string): string {
  if (!/^```(?:json)?\n/i.test(text) || !text.endsWith('\n```')) return text;
  return text.slice(text.indexOf('\n'), -3).trim();
}

function describe(value: object): string {
  if (!isObject(value)) return `A list of ${(value as unknown[]).length} items.`;
  const { name, description, output, error, message } = value;
  if (isText(name) && isText(description)) return `${name}: ${description}`;
  if (isText(output)) return cutText(output, MAX_OUTPUT);
  const failure = [isObject(error) ? error.message : error, message].find(isText);
  if (failure !== undefined) return failure;
  const keys = Object.keys(value);
  if (keys.length === 0) return 'An empty result.';
  const named = keys.slice(0, MAX_KEYS).map((key) => cutText(key, MAX_KEY));
  return `A result with ${named.join(', ')}${keys.length > MAX_KEYS ? ' and more' : ''}.`;
}

const isText = (value: unknown): value is string => typeof value === 'string' && value.trim() !== '';

/** Removes each heading of sources with the list below it, up to the first other line. */
function withoutSources(text: string): string {
  const remaining: string[] = [];
  let isDropping = false;
  for (const line of text.split(/\r\n?|\n/)) {
    const trimmed = line.trim();
    if (isDropping && (trimmed === '' || SOURCE_LINE.test(trimmed))) continue;
    isDropping = trimmed.length <= MAX_HEADING && SOURCES_HEADING.test(trimmed);
    if (!isDropping && !INLINE_SOURCES.test(trimmed)) remaining.push(line);
  }
  return remaining.join('\n');
}
