import { parseJson } from '../kit/json.ts';
import { memberNamed, membersOf, type TextMember } from '../kit/json-text.ts';

/** Bytes of a message that determine its dispatch. */
const HEAD_BYTES = 4096;

/** Members that determine the handling of a message before it is parsed. */
export interface EnvelopeHead {
  channel: string;
  type: string;
  /** The client's id, or a new one if it sent none of 1 to 256 characters. */
  id: string;
}

/** A text frame: its text, or the UTF-8 bytes of a long one that was not decoded yet. */
export type TextFrame = string | LongFrame;

/** The bytes of a long frame, with a function that returns its memory to the budget once it was handled or dropped. */
export type LongFrame = Uint8Array & { handled?(): void };

/** Returns the memory of a frame to the budget. Idempotent. */
export function releaseFrame(frame: TextFrame): void {
  if (typeof frame !== 'string') frame.handled?.();
}

/** True if a text is no longer than its head. Counts characters, so that non-ASCII texts may be a few KiB longer. */
export const isShort = (frame: TextFrame): frame is string => typeof frame === 'string' && frame.length <= HEAD_BYTES;

const encoder = new TextEncoder();
/** Decodes like the runtimes: a byte-order mark stays, and is invalid JSON. */
export const KEEPING_BOM = { ignoreBOM: true };
const decoder = new TextDecoder('utf-8', KEEPING_BOM);

export const textOfFrame = (frame: TextFrame): string => (typeof frame === 'string' ? frame : decoder.decode(frame));

function headText(frame: TextFrame): string {
  if (typeof frame !== 'string') return decoder.decode(frame.subarray(0, HEAD_BYTES));
  const start = frame.slice(0, HEAD_BYTES);
  return start.slice(0, encoder.encodeInto(start, new Uint8Array(HEAD_BYTES)).read);
}

/** The client's id if usable, else a new one (contract 02 §1.2). */
export const usableId = (id: unknown): string =>
  typeof id === 'string' && id.length >= 1 && id.length <= 256 ? id : crypto.randomUUID();

/**
 * Reads `channel`, `type` and `id` from the first 4 KiB of a message without parsing it (contract 02 §1.1). Null unless the
 * first two are there, as texts. Of members with the same name the last one counts, like in `JSON.parse`. Reads no more than
 * 4 KiB and validates nothing else, so parsing may yield different values.
 */
export function readHead(frame: TextFrame): EnvelopeHead | null {
  const head = headText(frame);
  const members = membersOf(head);
  const [channel, type, id] = ['channel', 'type', 'id'].map((name) => textIn(head, memberNamed(members, name)));
  return typeof channel === 'string' && typeof type === 'string' ? { channel, type, id: usableId(id) } : null;
}

/** A member's value if it is a valid string literal. */
function textIn(head: string, member: TextMember | undefined): unknown {
  return member && head[member.valueStart] === '"' ? parseJson(head.slice(member.valueStart, member.end)) : undefined;
}
