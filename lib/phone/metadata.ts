import type { Metadata } from '../../storage/schema.ts';
import { isObject } from '../kit/json.ts';

const MAX_KEYS = 24;
const MAX_KEY = 80;
const MAX_STRING = 512;
const MAX_ITEMS = 16;

type Scalar = string | number | boolean | null;

/** A scalar, with its text cut to the limit; undefined for any other value. */
function scalar(value: unknown): Scalar | undefined {
  if (typeof value === 'string') return value.slice(0, MAX_STRING);
  if (value === null || typeof value === 'boolean') return value;
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function storable(value: unknown): Scalar | Scalar[] | undefined {
  if (!Array.isArray(value)) return scalar(value);
  const items: Scalar[] = [];
  for (const item of value) {
    const one = scalar(item);
    if (one !== undefined && items.push(one) === MAX_ITEMS) break;
  }
  return items.length > 0 ? items : undefined;
}

/**
 * Metadata of a message or a reply, reduced to the first 24 keys, scalars, and arrays of scalars (contract 04 §5.5).
 * Returns `{}` for anything but an object.
 */
export function sanitizeMetadata(value: unknown): Metadata {
  if (!isObject(value)) return {};
  const entries: [string, Scalar | Scalar[]][] = [];
  for (const [name, member] of Object.entries(value).slice(0, MAX_KEYS)) {
    const key = name.slice(0, MAX_KEY);
    const one = storable(member);
    // unstorage drops `__proto__`, and says so on the console, when it reads a stored record.
    if (key !== '' && key !== '__proto__' && one !== undefined) entries.push([key, one]);
  }
  return Object.fromEntries(entries);
}
