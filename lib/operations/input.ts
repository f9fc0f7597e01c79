import * as v from 'valibot';
import { isObject, type JsonObject } from '../kit/json.ts';

/**
 * The vocabulary of input schemas. Each schema describes a member for a model, and has the error sentence for an invalid
 * value. The types are strict; `inputOf` converts input that arrives as text, such as a query.
 */

/** An object schema with accessible entries. */
export type InputSchema = v.GenericSchema & { readonly entries: v.ObjectEntries };

/** The part of an operation that `inputOf` reads. */
export interface InputRow {
  readonly input: InputSchema;
  /** Aliases of members, each with the name in the schema. */
  readonly aliases?: Readonly<Record<string, string>>;
}

/** The arguments of an operation. `missing` is the sentence for an absent member, by default `missing <name>`. */
export const input = <const Entries extends v.ObjectEntries>(entries: Entries, missing?: string) =>
  v.object(
    entries,
    ({ path }) => missing ?? (path ? `missing ${String(path[0]?.key)}` : 'arguments must be an object'),
  );

/** A rule about several members, which returns the sentence for arguments that violate it. */
export const rule = <Value>(problemOf: (value: Value) => string | undefined) =>
  v.rawCheck<Value>(({ dataset, addIssue }) => {
    const message = dataset.typed ? problemOf(dataset.value) : undefined;
    if (message !== undefined) addIssue({ message });
  });

const string = (name: string) => v.string(`${name} must be a string`);

/** Any text, including the empty one. */
export const text = (name: string, description: string) => v.pipe(string(name), v.description(description));

/** Text that is not empty. */
export const filledText = (name: string, description: string) =>
  v.pipe(string(name), v.nonEmpty(`missing ${name}`), v.description(description));

/** Text that is not blank. */
export const requiredText = (name: string, description: string) =>
  v.pipe(
    filledText(name, description),
    v.check((value) => value.trim() !== '', `missing ${name}`),
  );

/** Text, or undefined if absent or blank. Trimmed. */
export const optionalText = (name: string, description: string) =>
  v.optional(
    v.pipe(
      text(name, description),
      v.trim(),
      v.transform((value) => value || undefined),
    ),
  );

/** One of a list of words. `problem` is the sentence for any other. */
export const oneOf = <const Words extends readonly string[]>(
  name: string,
  words: Words,
  description: string,
  problem = `${name} must be one of ${words.join(', ')}`,
) =>
  v.pipe(
    v.picklist(words, ({ input }) => {
      if (typeof input !== 'string') return `${name} must be a string`;
      return input.trim() === '' ? `missing ${name}` : problem;
    }),
    v.description(description),
  );

/** An integer that JSON carries exactly. */
export const integer = (name: string, description: string) => {
  const problem = `${name} must be an integer`;
  return v.pipe(v.number(problem), v.integer(problem), v.safeInteger(problem), v.description(description));
};

/** An integer in a range. `title` is its name in the sentence. */
export const integerWithin = (name: string, low: number, high: number, description: string, title = name) => {
  const problem = `${title} must be ${low} to ${high}`;
  return v.pipe(integer(name, description), v.minValue(low, problem), v.maxValue(high, problem));
};

/** An integer, clamped to a range. */
export const clamped = (name: string, low: number, high: number, description: string) =>
  v.pipe(integer(name, `${description}; ${low} to ${high}`), v.toMinValue(low), v.toMaxValue(high));

export const flag = (name: string, description: string) =>
  v.pipe(v.boolean(`${name} must be true or false`), v.description(description));

/**
 * Converts arguments to the names and types of a row's schema: aliases resolved, null counted as absent, numbers and
 * booleans read from text (a query is text, contract 03 §4.1), words of a list trimmed and in lower case. An unreadable
 * value stays, so that the schema refuses it. Members unknown to the schema stay too.
 */
export function inputOf({ input: { entries }, aliases = {} }: InputRow, raw: JsonObject): JsonObject {
  const given = withoutNulls(raw);
  for (const [alias, name] of Object.entries(aliases)) {
    if (!Object.hasOwn(given, alias)) continue;
    if (!Object.hasOwn(given, name)) given[name] = given[alias];
    delete given[alias];
  }
  for (const [name, schema] of Object.entries(entries)) {
    if (!Object.hasOwn(given, name)) continue;
    const value = readAs(schema, given[name]);
    if (value === undefined) delete given[name];
    else given[name] = value;
  }
  return given;
}

const withoutNulls = (values: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null));

/** Undefined for empty text in place of a number or boolean, which counts as absent. */
function readAs(schema: v.ObjectEntries[string], value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => (isObject(item) ? withoutNulls(item) : item));
  if (typeof value !== 'string') return value;
  const isOptional = 'wrapped' in schema;
  const { type } = isOptional ? (schema.wrapped as v.GenericSchema) : schema;
  const word = value.trim().toLowerCase();
  if (type === 'picklist') return word;
  if (type === 'number') {
    if (word === '') return undefined;
    return /^[+-]?\d{1,16}$/.test(word) ? Number(word) : value;
  }
  // Text is not accepted for a required boolean (contract 03 §5, `/events/stream`).
  if (type === 'boolean' && isOptional) {
    if (word === '') return undefined;
    if (word === 'true') return true;
    if (word === 'false') return false;
  }
  return value;
}
