import { concatBytes } from '../../kit/bytes.ts';

/** The part of the receiver of a `ws` socket that holds incoming bytes. test/node/internals.test.ts fails if it changes. */
export interface ChunkHolder {
  _state: number;
  _mask?: Uint8Array;
  /** Received but unprocessed data. */
  _buffers: Buffer[];
  /** Payloads of the previous frames of the current message. */
  _fragments: Buffer[];
  _write(chunk: Buffer, encoding: string, done: Done): void;
}

export type Done = (error?: Error) => void;

/** The state of a receiver that waits for the rest of a payload. */
export const WAITS_FOR_PAYLOAD = 4;
export const NO_MASK = new Uint8Array(4);
/** Bytes from which a part of a message may stay in its chunk, if it is at least half of it. */
const MIN_PART = 4096;

/**
 * Makes a `ws` socket keep no more memory than it has received of incomplete frames and messages. Its receiver keeps views
 * of chunks: the mask of the last frame, the start of the next one, and every fragment of a message. One byte can thus hold a
 * chunk of 64 KiB, on a quiet socket for as long as it is open, and a message in fragments 4,096 of them (2026-11).
 */
export function releaseChunks(webSocket: unknown): void {
  const { _receiver: receiver } = webSocket as { _receiver: ChunkHolder };
  receiver._write = writeReleased;
}

function writeReleased(this: ChunkHolder, chunk: Buffer, encoding: string, done: Done): void {
  (Object.getPrototypeOf(this) as ChunkHolder)._write.call(this, chunk, encoding, done);
  release(this);
}

/** Releases what a receiver keeps after a chunk. */
export function release(receiver: ChunkHolder): void {
  // `ws` reads another mask for the next frame.
  if (receiver._state !== WAITS_FOR_PAYLOAD) receiver._mask = undefined;
  else if (receiver._mask && receiver._mask.buffer.byteLength > NO_MASK.length)
    receiver._mask = ownCopy(receiver._mask);
  if (receiver._buffers.length > 0) releaseParts(receiver._buffers);
  if (receiver._fragments.length > 0) releaseParts(receiver._fragments);
}

/** Joins the last parts that are small, or a small part of their chunk. The parts before them were released already. */
function releaseParts(parts: Buffer[]): void {
  let first = parts.length;
  while (first > 0 && !mayStay(parts[first - 1] as Buffer)) first--;
  const [small, ...others] = parts.slice(first);
  if (!small || (others.length === 0 && small.buffer.byteLength <= 2 * small.length)) return;
  parts.splice(first, parts.length - first, ownCopy(small, ...others));
}

const mayStay = ({ length, buffer }: Buffer): boolean => length >= MIN_PART && buffer.byteLength <= 2 * length;

/** Parts joined in memory of their own, not in the pool that Node shares between small buffers. */
const ownCopy = (...parts: Uint8Array[]): Buffer => Buffer.from(concatBytes(...parts).buffer);
