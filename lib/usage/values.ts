import { visibleLine } from '../kit/text.ts';

/** Readers of provider responses, which may have any shape. Each returns a value that may be shown, or null. */

const MAX_TIME = 80;
const MAX_ID = 40;
const MAX_URL = 500;
export const MAX_PLAN = 80;
export const MAX_LABEL = 80;
const ISO = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d|$)/;
const DECIMAL = /^[+-]?\d+(?:\.\d+)?$/;

/** A finite number, or text of one, since 64-bit integers come as text. */
export function numberOf(value: unknown): number | null {
  const number = typeof value === 'string' && DECIMAL.test(value) ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : null;
}

/** 0 to 100. */
export function percentOf(value: unknown): number | null {
  const number = numberOf(value);
  return number === null ? null : Math.min(100, Math.max(0, Math.round(number * 100) / 100));
}

/** A time as ISO 8601, from epoch seconds or from text in that form. */
export function timeOf(value: unknown): string | null {
  const number = numberOf(value);
  if (number !== null) {
    const date = new Date(number * 1000);
    return Number.isNaN(date.getTime()) ? null : date.toISOString();
  }
  return typeof value === 'string' && ISO.test(value.trim()) ? textOf(value, MAX_TIME) : null;
}

/** One line of at most `limit` characters; null for blank text and other values. */
export function textOf(value: unknown, limit: number): string | null {
  if (typeof value !== 'string') return null;
  return visibleLine(value).trim().slice(0, limit).toWellFormed() || null;
}

/** `pro_plus` becomes `Pro Plus`. */
export const titleCase = (text: string): string =>
  text
    .toLowerCase()
    .split(/[\s_-]+/)
    .filter(Boolean)
    .map((word) => word[0]?.toUpperCase() + word.slice(1))
    .join(' ');

/** Id of a window, from its label. */
export const windowId = (label: string): string => label.toLowerCase().replace(/\s+/g, '_').slice(0, MAX_ID);

/** An http(s) URL, or null. */
export function urlOf(text: string): string | null {
  return text.length <= MAX_URL && URL.canParse(text) && /^https?:$/.test(new URL(text).protocol) ? text : null;
}
