/** Bytes of a message that tell how it is dispatched. */
const HEAD_BYTES = 4096;

/** Members that decide on a message before it is parsed. */
export interface EnvelopeHead {
  channel: string;
  type: string;
  /** The client's id, or a new one when it sent none of 1 to 256 characters. */
  id: string;
}

/** A text frame: its text, or its UTF-8 bytes where a long one has not been decoded. */
export type TextFrame = string | LongFrame;

/** The bytes of a long frame, with what gives its memory back to the budget once it has been handled or dropped. */
export type LongFrame = Uint8Array & { handled?(): void };

/** Gives the memory of a frame back to the budget. Idempotent. */
export function releaseFrame(frame: TextFrame): void {
  if (typeof frame !== 'string') frame.handled?.();
}

/** Whether a text is all head. Counts characters, so that non-ASCII texts of a few KiB more are, too. */
export const isShort = (frame: TextFrame): frame is string => typeof frame === 'string' && frame.length <= HEAD_BYTES;

const encoder = new TextEncoder();
/** Decodes as the runtimes do: a byte-order mark stays, and is no JSON. */
export const KEEPING_BOM = { ignoreBOM: true };
const decoder = new TextDecoder('utf-8', KEEPING_BOM);

export const textOfFrame = (frame: TextFrame): string => (typeof frame === 'string' ? frame : decoder.decode(frame));

function startOf(frame: TextFrame): string {
  if (typeof frame !== 'string') return decoder.decode(frame.subarray(0, HEAD_BYTES));
  const start = frame.slice(0, HEAD_BYTES);
  return start.slice(0, encoder.encodeInto(start, new Uint8Array(HEAD_BYTES)).read);
}

/** The client's id if it is usable, else a new one (contract 02 §1.2). */
export const usableId = (id: unknown): string =>
  typeof id === 'string' && id.length >= 1 && id.length <= 256 ? id : crypto.randomUUID();

/**
 * Reads `channel`, `type` and `id` from the first 4 KiB of a message without parsing it (contract 02 §1.1). Null unless
 * the first two are there, as texts. Of members with the same name the last one counts, as for `JSON.parse`. What comes
 * after 4 KiB is not seen, and nothing else is validated: parsing tells, and may disagree.
 */
export function readHead(frame: TextFrame): EnvelopeHead | null {
  const { channel, type, id } = membersIn(startOf(frame));
  return typeof channel === 'string' && typeof type === 'string' ? { channel, type, id: usableId(id) } : null;
}

type Members = { channel?: unknown; type?: unknown; id?: unknown };

/** The members of interest of a JSON object of which only the beginning is known; undefined for any but a text. */
function membersIn(text: string): Members {
  const members: Members = {};
  let at = afterSpace(text, 0);
  if (text[at] !== '{') return members;
  do {
    const key = afterSpace(text, at + 1);
    const keyEnd = afterString(text, key);
    const colon = afterSpace(text, keyEnd);
    if (keyEnd < 0 || text[colon] !== ':') break;
    const value = afterSpace(text, colon + 1);
    const end = afterValue(text, value);
    if (end < 0) break;
    const name = stringAt(text, key, keyEnd);
    if (name === 'channel' || name === 'type' || name === 'id') {
      members[name] = text[value] === '"' ? stringAt(text, value, end) : undefined;
    }
    at = afterSpace(text, end);
  } while (text[at] === ',');
  return members;
}

/** The value of a string literal; undefined for an invalid one. */
function stringAt(text: string, start: number, end: number): string | undefined {
  try {
    return JSON.parse(text.slice(start, end));
  } catch {
    return undefined;
  }
}

function afterSpace(text: string, at: number): number {
  let next = at;
  while (text[next] === ' ' || text[next] === '\n' || text[next] === '\r' || text[next] === '\t') next++;
  return next;
}

/** The index after the string literal at `at`; -1 when there is none, or its end is not known. */
function afterString(text: string, at: number): number {
  if (text[at] !== '"') return -1;
  for (let next = at + 1; next < text.length; next++) {
    if (text[next] === '\\') next++;
    else if (text[next] === '"') return next + 1;
  }
  return -1;
}

/** The index after the value at `at`; -1 when its end is not known. Brackets are counted, not matched. */
function afterValue(text: string, at: number): number {
  if (text[at] === '"') return afterString(text, at);
  let depth = 0;
  for (let next = at; next < text.length; next++) {
    const character = text[next] as string;
    if (character === '"') {
      next = afterString(text, next) - 1;
      if (next < 0) return -1;
    } else if (character === '{' || character === '[') depth++;
    else if (depth === 0 && (character === ',' || character === '}')) return next;
    else if ((character === '}' || character === ']') && --depth === 0) return next + 1;
  }
  return -1;
}
