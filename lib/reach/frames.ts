import { bytesOfId, ID_BYTES, idOfBytes } from './ids.ts';

/** Bytes in front of the payload: version, flags, stream ID (contract 08 §6.4). */
export const HEADER_BYTES = 2 + ID_BYTES;
/** Bytes of payload that one frame may carry. */
export const MAX_PAYLOAD = 1024 * 1024;
/** Bytes of the largest frame, header and payload. */
export const MAX_FRAME = HEADER_BYTES + MAX_PAYLOAD;

const VERSION = 1;
const DATA = 2;
const CLOSE = 4;
/** Legal once both sides have agreed on flow control (contract 08 §7.6). */
const WINDOW = 8;

/** A frame between host and broker. `credit` is the number of further bytes that the other side may send. */
export type Frame =
  | { type: 'data'; streamId: string; payload: Uint8Array }
  | { type: 'close'; streamId: string }
  | { type: 'window'; streamId: string; credit: number };

/** `size`: shorter than a header or longer than the largest frame. `malformed`: any other invalid frame. */
export type BadFrame = { type: 'bad'; reason: 'size' | 'malformed' };

/**
 * Reads one binary message. The payload is a view of `bytes`.
 * @param flow whether WINDOW frames are legal on this connection
 */
export function decodeFrame(bytes: Uint8Array, flow: boolean): Frame | BadFrame {
  const { length } = bytes;
  if (length < HEADER_BYTES || length > MAX_FRAME) return { type: 'bad', reason: 'size' };
  const streamId = idOfBytes(bytes.subarray(2, HEADER_BYTES));
  const payload = bytes.subarray(HEADER_BYTES);
  if (bytes[0] === VERSION) {
    if (bytes[1] === DATA && payload.length > 0) return { type: 'data', streamId, payload };
    if (bytes[1] === CLOSE && payload.length === 0) return { type: 'close', streamId };
    if (bytes[1] === WINDOW && payload.length === 4 && flow) {
      const credit = new DataView(bytes.buffer, bytes.byteOffset + HEADER_BYTES, 4).getUint32(0);
      if (credit > 0) return { type: 'window', streamId, credit };
    }
  }
  return { type: 'bad', reason: 'malformed' };
}

function encode(flags: number, streamId: string, payloadBytes: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(HEADER_BYTES + payloadBytes);
  bytes[0] = VERSION;
  bytes[1] = flags;
  bytes.set(bytesOfId(streamId), 2);
  return bytes;
}

/** The first bytes of each DATA frame of a stream, in front of its payload. */
export const dataHeader = (streamId: string): Uint8Array<ArrayBuffer> => encode(DATA, streamId, 0);

export const closeFrame = (streamId: string): Uint8Array<ArrayBuffer> => encode(CLOSE, streamId, 0);

/** A WINDOW frame. @throws RangeError unless `credit` is a positive unsigned 32-bit integer. */
export function windowFrame(streamId: string, credit: number): Uint8Array<ArrayBuffer> {
  if (!Number.isInteger(credit) || credit <= 0 || credit > 0xffffffff) throw new RangeError('not a credit');
  const bytes = encode(WINDOW, streamId, 4);
  new DataView(bytes.buffer).setUint32(HEADER_BYTES, credit);
  return bytes;
}
