/** A JSON object, neither null nor an array. */
export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The value if it is a JSON object, otherwise null. */
export const asObject = (value: unknown): JsonObject | null => (isObject(value) ? value : null);

/** Parses JSON text; undefined when it is invalid. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Parses the JSON text of an object; null for any other text. */
export const parseObject = (text: string): JsonObject | null => asObject(parseJson(text));
