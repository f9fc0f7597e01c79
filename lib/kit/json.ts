/** A JSON object: neither null nor a list. */
export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A JSON object, or null for every other value. */
export const asObject = (value: unknown): JsonObject | null => (isObject(value) ? value : null);

/** What a text says as JSON, or undefined where it is none. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The JSON object that a text is, or null for every other text. */
export const parseObject = (text: string): JsonObject | null => asObject(parseJson(text));
