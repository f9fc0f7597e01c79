import type { HeaderReader } from '../access/peer.ts';

/** Properties of a resource that conditions and ranges apply to. */
export interface Representation {
  size: number;
  /** A strong ETag, with its quotes. */
  etag: string;
  /** Epoch milliseconds. */
  modified: number;
}

/** The part of a representation that a request selects. `end` is inclusive. */
export type Selection =
  | { kind: 'whole' }
  | { kind: 'part'; start: number; end: number }
  | { kind: 'unsatisfiable' }
  | { kind: 'unchanged' };

const wholeSeconds = (time: number): number => Math.floor(time / 1000);

/** A time in the format of `Last-Modified`. */
export const httpDate = (time: number): string => new Date(wholeSeconds(time) * 1000).toUTCString();

/** Evaluates conditions, then a single range; ignores malformed and multiple ranges (RFC 9110 §13.2.2, §14.2). */
export function select(headers: HeaderReader, representation: Representation): Selection {
  if (isUnchanged(headers, representation)) return { kind: 'unchanged' };
  const range = headers.get('range');
  if (range === null || !rangeApplies(headers.get('if-range'), representation)) return { kind: 'whole' };
  return readRange(range, representation.size);
}

/** True if `If-None-Match` names the ETag of a representation; null without that header (RFC 9110 §13.1.2). */
export function isKnown(headers: HeaderReader, etag: string): boolean | null {
  const tags = headers.get('if-none-match');
  if (tags === null) return null;
  return tags.trim() === '*' || tags.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag);
}

function isUnchanged(headers: HeaderReader, { etag, modified }: Representation): boolean {
  const known = isKnown(headers, etag);
  if (known !== null) return known;
  const since = Date.parse(headers.get('if-modified-since') ?? '');
  return wholeSeconds(modified) <= wholeSeconds(since);
}

/** A weak tag never matches, and a date only exactly. */
function rangeApplies(condition: string | null, { etag, modified }: Representation): boolean {
  if (condition === null) return true;
  const text = condition.trim();
  return text === etag || (!text.includes('"') && wholeSeconds(Date.parse(text)) === wholeSeconds(modified));
}

function readRange(text: string, size: number): Selection {
  const match = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i.exec(text.trim());
  const [, first = '', last = ''] = match ?? [];
  if (!match || (first === '' && last === '')) return { kind: 'whole' };
  if (first === '') {
    const length = Math.min(Number(last), size);
    return length === 0 ? { kind: 'unsatisfiable' } : { kind: 'part', start: size - length, end: size - 1 };
  }
  const [start, end] = [Number(first), last === '' ? Number.POSITIVE_INFINITY : Number(last)];
  if (end < start) return { kind: 'whole' };
  return start >= size ? { kind: 'unsatisfiable' } : { kind: 'part', start, end: Math.min(end, size - 1) };
}
