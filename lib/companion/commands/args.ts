import { isObject } from '../../kit/json.ts';
import { CommandFailure } from '../gates/gate.ts';
import { isBlank } from '../text.ts';

export type Args = Record<string, unknown>;

export const badRequest = (error: string) => new CommandFailure(400, error);

/** The first of `names` that is present. null counts as absent, and inherited members are ignored. */
export function pick(args: Args, ...names: string[]): unknown {
  for (const name of names) if (Object.hasOwn(args, name) && args[name] !== null) return args[name];
  return undefined;
}

/** The value of an own member, so that a name such as `constructor` finds nothing. */
export const lookUp = <T>(table: Record<string, T>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

/** A string, or undefined when absent. */
export function text(args: Args, ...names: string[]): string | undefined {
  const value = pick(args, ...names);
  if (value === undefined || typeof value === 'string') return value;
  throw badRequest(`${names[0]} must be a string`);
}

/** A string that is not blank. */
export function required(args: Args, ...names: string[]): string {
  const value = text(args, ...names);
  if (value === undefined || isBlank(value)) throw badRequest(`missing ${names[0]}`);
  return value;
}

/** An integer, also as text, because query values arrive as strings (contract 03 §4.1). */
export function integer(args: Args, ...names: string[]): number | undefined {
  const value = pick(args, ...names);
  if (value === undefined || value === '') return undefined;
  const number = typeof value === 'string' && /^\s*[+-]?\d{1,16}\s*$/.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number)) return number;
  throw badRequest(`${names[0]} must be an integer`);
}

export const clamp = (value: number, low: number, high: number): number => Math.min(Math.max(value, low), high);

/** A boolean, also as text. */
export function flag(args: Args, ...names: string[]): boolean | undefined {
  const value = pick(args, ...names);
  if (value === undefined || value === '') return undefined;
  const word = typeof value === 'string' ? value.trim().toLowerCase() : value;
  if (word === true || word === 'true') return true;
  if (word === false || word === 'false') return false;
  throw badRequest(`${names[0]} must be true or false`);
}

/** A required integer >= 0. */
export function coordinate(args: Args, name: string): number {
  const value = integer(args, name);
  if (value === undefined) throw badRequest(`missing ${name}`);
  if (value < 0) throw badRequest(`${name} must not be negative`);
  return value;
}

/** An object of strings. Numbers and booleans become text, other values are dropped (contract 03 §5, `extras`). */
export function stringMap(args: Args, name: string): Record<string, string> {
  const value = pick(args, name);
  if (value === undefined) return {};
  if (!isObject(value)) throw badRequest(`${name} must be an object`);
  const isPrimitive = (entry: [string, unknown]) => ['string', 'number', 'boolean'].includes(typeof entry[1]);
  return Object.fromEntries(
    Object.entries(value)
      .filter(isPrimitive)
      .map(([key, entry]) => [key, String(entry)]),
  );
}
