/** A JSON object: neither null nor a list. */
export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A JSON object, or null for every other value. */
export const asObject = (value: unknown): JsonObject | null => (isObject(value) ? value : null);
