import { parseCutJson, parseJson } from '../kit/json.ts';
import { isSecretName } from '../kit/secret-names.ts';

const MAX_STRING = 1600;
const MAX_ARRAY = 20;
const MAX_DEPTH = 8;

const OUTPUTS = new Set(['result', 'output', 'stdout', 'stderr']);

/** At most `limit` characters of a text; a cut text ends in `…`. */
export function cutText(text: string, limit = MAX_STRING): string {
  // The cut may split a surrogate pair.
  return text.length > limit ? `${text.slice(0, limit - 1).toWellFormed()}…` : text;
}

/**
 * A JSON value as clients may see it: secrets redacted, large values cut (contract 02 §5.7). `depth` is its distance
 * from the root.
 */
export function preview(value: unknown, depth = 0): unknown {
  if (typeof value !== 'string' && (typeof value !== 'object' || value === null)) return value;
  if (depth > MAX_DEPTH) return '[TRUNCATED]';
  if (typeof value === 'string') return cutText(value);
  if (Array.isArray(value)) return value.slice(0, MAX_ARRAY).map((element) => preview(element, depth + 1));
  return previewObject(value as Record<string, unknown>, depth);
}

/**
 * The text of a tool's result as clients may see it: JSON is previewed, and everything cut to 1,600 characters.
 * `isCut`: the text is only the beginning of a longer one.
 */
export function previewText(text: string, isCut: boolean): { text: string; isCut: boolean } {
  const value = isCut ? parseCutJson(text) : parseJson(text);
  const shown = typeof value === 'object' && value !== null ? JSON.stringify(preview(value)) : text;
  return { text: cutText(shown), isCut: isCut || shown.length > MAX_STRING };
}

/** As `preview`, with higher limits for the string members named in `limits`. */
export function previewObject(
  object: Record<string, unknown>,
  depth = 0,
  limits: Readonly<Record<string, number>> = {},
): Record<string, unknown> {
  const members: [string, unknown][] = [];
  for (const [name, value] of Object.entries(object)) {
    const limit = Object.hasOwn(limits, name) ? limits[name] : undefined;
    if (isSecretName(name)) members.push([name, '[REDACTED]']);
    else if (typeof value === 'string' && limit !== undefined) members.push([name, cutText(value, limit)]);
    else if (!OUTPUTS.has(name)) members.push([name, preview(value, depth + 1)]);
    else if (!Object.hasOwn(object, `${name}_preview`)) members.push([`${name}_preview`, preview(value, depth + 1)]);
  }
  // Not by assignment, because a member may be named `__proto__`.
  return Object.fromEntries(members);
}
