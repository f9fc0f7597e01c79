import { byCodePoint } from '../kit/text.ts';

/** What JSON can say; a member that is `undefined` is not there. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json | undefined };

/** A JSON string in ASCII: what is beyond it becomes `\uXXXX` in lower case, one per UTF-16 unit. */
const quote = (text: string): string =>
  JSON.stringify(text).replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

function number(value: number): string {
  if (!Number.isFinite(value)) throw new TypeError('JSON has no such number');
  // BigInt, because the number's own text gets an exponent from 1e21 on.
  return Number.isInteger(value) ? BigInt(value).toString() : String(value);
}

/**
 * The one form of a value that signatures are made over (contract 01 §5.4): keys by code point at every depth, arrays
 * in order, no white space, ASCII only, `/` as it is, integers without fraction or exponent.
 * @throws TypeError for a number that is not finite.
 */
export function canonicalJson(value: Json): string {
  if (typeof value === 'string') return quote(value);
  if (typeof value === 'number') return number(value);
  if (value === null || typeof value === 'boolean') return String(value);
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  const members = Object.keys(value)
    .sort(byCodePoint)
    .flatMap((key) => {
      const member = value[key];
      return member === undefined ? [] : `${quote(key)}:${canonicalJson(member)}`;
    });
  return `{${members.join(',')}}`;
}
