import { isObject } from '../../kit/json.ts';
import { CommandFailure } from '../gates/gate.ts';
import { isBlank } from '../text.ts';

export type Args = Record<string, unknown>;

const bad = (error: string) => new CommandFailure(400, error);

/** The first of `names` that is there. null counts as absent, and inherited members are none. */
export function pick(args: Args, ...names: string[]): unknown {
  for (const name of names) if (Object.hasOwn(args, name) && args[name] !== null) return args[name];
  return undefined;
}

/** A string, or undefined when absent. Anything else is a bad argument. */
export function text(args: Args, ...names: string[]): string | undefined {
  const value = pick(args, ...names);
  if (value === undefined || typeof value === 'string') return value;
  throw bad(`${names[0]} must be a string`);
}

/** A string with something in it. */
export function required(args: Args, ...names: string[]): string {
  const value = text(args, ...names);
  if (value === undefined || isBlank(value)) throw bad(`missing ${names[0]}`);
  return value;
}

/** A whole number, also as text: query values arrive so (contract 03 §4.1). */
export function integer(args: Args, ...names: string[]): number | undefined {
  const value = pick(args, ...names);
  if (value === undefined || value === '') return undefined;
  const number = typeof value === 'string' && /^\s*[+-]?\d{1,16}\s*$/.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number)) return number;
  throw bad(`${names[0]} must be an integer`);
}

export const clamp = (value: number, low: number, high: number): number => Math.min(Math.max(value, low), high);

/** `true` or `false`, also as text. */
export function flag(args: Args, ...names: string[]): boolean | undefined {
  const value = pick(args, ...names);
  if (value === undefined || value === '') return undefined;
  const word = typeof value === 'string' ? value.trim().toLowerCase() : value;
  if (word === true || word === 'true') return true;
  if (word === false || word === 'false') return false;
  throw bad(`${names[0]} must be true or false`);
}

/** A whole number >= 0 that must be there. */
export function coordinate(args: Args, name: string): number {
  const value = integer(args, name);
  if (value === undefined) throw bad(`missing ${name}`);
  if (value < 0) throw bad(`${name} must not be negative`);
  return value;
}

/** `values` of a primitive type as text; the others are dropped (contract 03 §5, `extras`). */
export function stringMap(args: Args, name: string): Record<string, string> {
  const value = pick(args, name);
  if (value === undefined) return {};
  if (!isObject(value)) throw bad(`${name} must be an object`);
  const primitive = (entry: [string, unknown]) => ['string', 'number', 'boolean'].includes(typeof entry[1]);
  return Object.fromEntries(
    Object.entries(value)
      .filter(primitive)
      .map(([key, entry]) => [key, String(entry)]),
  );
}
