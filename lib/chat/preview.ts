import { isSecretName } from '../kit/secret-names.ts';

const MAX_STRING = 1600;
const MAX_ARRAY = 20;
const MAX_DEPTH = 8;

const OUTPUTS = new Set(['result', 'output', 'stdout', 'stderr']);

/** A text of at most `limit` characters; one that was cut ends in `…`. */
export function cutText(text: string, limit = MAX_STRING): string {
  // Half a surrogate pair at the cut would be no text any more.
  return text.length > limit ? `${text.slice(0, limit - 1).toWellFormed()}…` : text;
}

/**
 * What a client may see of a JSON value: secrets are blanked, and what may be large is cut (contract 02 §5.7).
 * `depth` is how many members and elements lie between the value and the one that is shown.
 */
export function preview(value: unknown, depth = 0): unknown {
  if (typeof value !== 'string' && (typeof value !== 'object' || value === null)) return value;
  if (depth > MAX_DEPTH) return '[TRUNCATED]';
  if (typeof value === 'string') return cutText(value);
  if (Array.isArray(value)) return value.slice(0, MAX_ARRAY).map((element) => preview(element, depth + 1));
  return previewObject(value as Record<string, unknown>, depth);
}

/** As `preview`; the members that `whole` names pass up to that many characters when they are strings. */
export function previewObject(
  object: Record<string, unknown>,
  depth = 0,
  whole: Readonly<Record<string, number>> = {},
): Record<string, unknown> {
  const members: [string, unknown][] = [];
  for (const [name, value] of Object.entries(object)) {
    const limit = Object.hasOwn(whole, name) ? whole[name] : undefined;
    if (isSecretName(name)) members.push([name, '[REDACTED]']);
    else if (typeof value === 'string' && limit !== undefined) members.push([name, cutText(value, limit)]);
    else if (!OUTPUTS.has(name)) members.push([name, preview(value, depth + 1)]);
    else if (!Object.hasOwn(object, `${name}_preview`)) members.push([`${name}_preview`, preview(value, depth + 1)]);
  }
  // Not by assignment: a member may be called `__proto__`.
  return Object.fromEntries(members);
}
