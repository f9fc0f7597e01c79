import { byCodePoint } from '../kit/text.ts';

/** A JSON value. Members that are `undefined` count as absent. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json | undefined };

/** An ASCII JSON string: other UTF-16 units are escaped as `\uXXXX`, in lower case. */
const quote = (text: string): string =>
  JSON.stringify(text).replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

function number(value: number): string {
  if (!Number.isFinite(value)) throw new TypeError('JSON has no infinite numbers and no NaN');
  // `String` writes integers from 1e21 on with an exponent; BigInt does not.
  return Number.isInteger(value) ? BigInt(value).toString() : String(value);
}

/**
 * The form of a value that is signed (contract 01 §5.4): keys sorted by code point at every depth, arrays in order, no
 * white space, ASCII only, `/` unescaped, integers without fraction or exponent.
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
