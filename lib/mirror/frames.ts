import * as v from 'valibot';
import type { MirrorCursor } from '../../storage/schema.ts';
import { readAs } from '../kit/entries.ts';
import { parseObject } from '../kit/json.ts';

/** Bytes of the largest frame (contract 12 §2). */
export const MAX_FRAME = 1024 * 1024;
/** Path of home's socket at the edge. */
export const HOME_PATH = '/v1/home';

/** A position in the ops of one side. */
export type Cursor = MirrorCursor;
/** Before every op. */
export const START: Cursor = { epoch: '', oseq: 0 };

const text = v.pipe(v.string(), v.maxLength(512));
const number = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const object = v.record(v.string(), v.unknown());
const origin = v.picklist(['home', 'edge']);
const cursor = v.object({ epoch: text, oseq: number });
const Op = v.object({ type: v.literal('op'), origin, ...cursor.entries, kind: text, body: object });

export type Origin = v.InferOutput<typeof origin>;
export type Op = v.InferOutput<typeof Op>;

/** The frames of the link (contract 12 §2, §7). */
const Frame = v.variant('type', [
  v.object({ type: v.literal('challenge'), nonce: text }),
  /** Home's hello includes its public key and the signature of the challenge. */
  v.object({
    type: v.literal('hello'),
    key: v.optional(text),
    sig: v.optional(text),
    epoch: text,
    applied: cursor,
  }),
  Op,
  /** A piece of an op that is too long for one frame; all pieces together are its JSON. */
  v.object({ type: v.literal('part'), text: v.string(), last: v.boolean() }),
  /** Everything up to `upto` is stored; `epoch` is that of the op with this number. */
  v.object({ type: v.literal('ack'), origin, upto: number, epoch: text }),
  v.object({ type: v.literal('call'), id: text, method: text, body: object }),
  v.object({ type: v.literal('result'), id: text, body: v.optional(object), error: v.optional(text) }),
]);

export type Frame = v.InferOutput<typeof Frame>;

/** The frame of a message; undefined for anything else. */
export const parseFrame = (message: string): Frame | undefined => readAs(Frame)(parseObject(message));

export const encodeFrame = (frame: Frame): string => JSON.stringify(frame);

/** Characters of a piece: encoded again and in UTF-8, they are well below the largest frame. */
const PIECE = 200_000;

/** The frames of an op: one, or its pieces. */
export function encodeOp(op: Op): string[] {
  const text = encodeFrame(op);
  if (text.length <= PIECE) return [text];
  const count = Math.ceil(text.length / PIECE);
  return Array.from({ length: count }, (_, n) =>
    encodeFrame({ type: 'part', text: text.slice(n * PIECE, (n + 1) * PIECE), last: n === count - 1 }),
  );
}
