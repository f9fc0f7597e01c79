import { bytesToHex, randomBytes } from '../kit/bytes.ts';

const MAX_NAME = 128;
const PREFIX = 'svc-';

/** A window size in cells. */
export interface Size {
  cols: number;
  rows: number;
}

/** True if a client's session name may be used: 1..128 characters, no control characters (contract 02 §3.1). */
export const isName = (value: unknown): value is string =>
  typeof value === 'string' && value.length >= 1 && value.length <= MAX_NAME && !/\p{Cc}/u.test(value);

/** Name for a session without one. */
export const freshName = (): string => `shell-${bytesToHex(randomBytes(4))}`;

/** The tmux session for a client's name; names that map to the same one share a shell (contract 02 §3.5). */
export function tmuxName(name: string): string {
  const sanitised = name.replace(/[\s.:]/g, '_').replace(/^_+|_+$/g, '');
  return PREFIX + (sanitised || 'default');
}

/** The client's name of a tmux session; undefined if the session is not the relay's. */
export const clientName = (tmux: string): string | undefined =>
  tmux.startsWith(PREFIX) ? tmux.slice(PREFIX.length) || 'default' : undefined;

/**
 * Columns or rows from a client: truncated and clamped to 1..1000, `fallback` for missing, null and 0. Undefined when
 * the value is not a number (contract 02 §3.1).
 */
export function cells(value: unknown, fallback: number): number | undefined {
  if (value === undefined || value === null || value === 0) return fallback;
  if (typeof value !== 'number' || !Number.isFinite(value)) return undefined;
  return Math.min(Math.max(Math.trunc(value), 1), 1000);
}

/** A window size; undefined when either value is not a number. */
export function sizeOf(cols: unknown, rows: unknown): Size | undefined {
  const size = { cols: cells(cols, 80), rows: cells(rows, 24) };
  return size.cols === undefined || size.rows === undefined ? undefined : (size as Size);
}
