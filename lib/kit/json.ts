/** A JSON object, neither null nor an array. */
export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The value if it is a JSON object, otherwise null. */
export const asObject = (value: unknown): JsonObject | null => (isObject(value) ? value : null);

/** A nested member; undefined when any part of the path is absent. */
export function at(value: unknown, ...path: string[]): unknown {
  let here = value;
  for (const name of path) here = isObject(here) && Object.hasOwn(here, name) ? here[name] : undefined;
  return here;
}

/** The trimmed text, '' unless the value is text. */
export const trimmedText = (value: unknown): string => (typeof value === 'string' ? value.trim() : '');

const isContainer = (value: unknown): value is object => typeof value === 'object' && value !== null;

/** True if objects and arrays are nested more than `levels` deep in a JSON value. Does not recurse. */
export function isDeeperThan(value: unknown, levels: number): boolean {
  let level = isContainer(value) ? [value] : [];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth === levels) return true;
    const next: object[] = [];
    for (const item of level) for (const child of Object.values(item)) if (isContainer(child)) next.push(child);
    level = next;
  }
  return false;
}

/** Parses JSON text; undefined when it is invalid. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The value of a truncated JSON text, with its open strings, lists and objects closed; undefined if it is not JSON. */
export function parseCutJson(text: string): unknown {
  const closers: string[] = [];
  let isString = false;
  let end = text.length;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (isString && character === '\\') {
      const length = text[at + 1] === 'u' ? 6 : 2;
      if (at + length > text.length) end = at;
      at += length - 1;
    } else if (character === '"') isString = !isString;
    else if (isString) continue;
    else if (character === '{') closers.push('}');
    else if (character === '[') closers.push(']');
    else if (character === '}' || character === ']') closers.pop();
  }
  if (closers.length === 0 && !isString) return parseJson(text);
  // An unfinished number, literal or list element is dropped.
  const begun = isString ? `${text.slice(0, end)}"` : text.replace(/[^\s,:{}[\]"]*$/, '').replace(/,\s*$/, '');
  const closing = closers.reverse().join('');
  for (const missing of ['', ':null', 'null']) {
    const value = parseJson(begun + missing + closing);
    if (value !== undefined) return value;
  }
  return undefined;
}

/** Parses the JSON text of an object; null for any other text. */
export const parseObject = (text: string): JsonObject | null => asObject(parseJson(text));

/** A JSON value for an error message: objects and lists by their kind, since `String` overflows the stack on deep ones. */
export function describeValue(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  return isObject(value) ? 'an object' : String(value);
}
