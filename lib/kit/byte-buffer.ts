const FIRST_SIZE = 64 * 1024;

/**
 * Bytes collected from any number of chunks, however small, in one buffer that doubles, because a list of single-byte chunks
 * would cost a hundred times its content.
 */
export function createByteBuffer(limit: number) {
  let buffer = new Uint8Array(Math.min(limit, FIRST_SIZE));
  let size = 0;
  return {
    /** Appends a copy of the bytes, up to the limit. Returns whether all of them fit. */
    push(bytes: Uint8Array): boolean {
      const fitting = bytes.subarray(0, limit - size);
      if (size + fitting.length > buffer.length) {
        const larger = new Uint8Array(Math.min(limit, Math.max(buffer.length * 2, size + fitting.length)));
        larger.set(buffer.subarray(0, size));
        buffer = larger;
      }
      buffer.set(fitting, size);
      size += fitting.length;
      return fitting.length === bytes.length;
    },
    /** Bytes so far. */
    get size(): number {
      return size;
    },
    /** A view of the collected bytes, valid until the next `push`. */
    bytes: (): Uint8Array<ArrayBuffer> => buffer.subarray(0, size),
  };
}
