import { parseJson } from '../kit/json.ts';
import { memberNamed, membersOf, type TextMember } from '../kit/json-text.ts';

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

/** True if a text is all head. Counts characters, so that non-ASCII texts of a few KiB more are, too. */
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
 * the first two are there, as texts. The last of members with the same name counts, as for `JSON.parse`. It does not
 * read beyond 4 KiB, and validates nothing else: parsing may disagree.
 */
export function readHead(frame: TextFrame): EnvelopeHead | null {
  const head = startOf(frame);
  const members = membersOf(head);
  const [channel, type, id] = ['channel', 'type', 'id'].map((name) => textIn(head, memberNamed(members, name)));
  return typeof channel === 'string' && typeof type === 'string' ? { channel, type, id: usableId(id) } : null;
}

/** A member's value if it is a string literal, and a valid one. */
function textIn(head: string, member: TextMember | undefined): unknown {
  return member && head[member.valueStart] === '"' ? parseJson(head.slice(member.valueStart, member.end)) : undefined;
}
