/** Small queued payloads are joined up to this many bytes: existing clients buffer 32 records, of any size. */
const JOINED_BYTES = 64 * 1024;

interface Group {
  bytes: Uint8Array;
  /** Bytes in use; more are allocated while a group grows. */
  length: number;
}

/**
 * Bytes of one direction of a stream. A payload that is queued alone leaves unchanged; small ones that are queued together
 * are joined, so that a flood of tiny payloads costs no more memory than its bytes.
 */
export class ByteQueue {
  #groups: Group[] = [];
  #head = 0;
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  /** Number of payloads that `take` would return. */
  get frames(): number {
    return this.#groups.length - this.#head;
  }

  push(payload: Uint8Array): void {
    this.#bytes += payload.length;
    const last = this.frames > 0 ? this.#groups.at(-1) : undefined;
    if (!last || last.length + payload.length > JOINED_BYTES) {
      this.#groups.push({ bytes: payload, length: payload.length });
      return;
    }
    const length = last.length + payload.length;
    if (length > last.bytes.length || last.length === last.bytes.length) {
      const grown = new Uint8Array(Math.min(JOINED_BYTES, Math.max(1024, 2 * length)));
      grown.set(last.bytes.subarray(0, last.length));
      last.bytes = grown;
    }
    last.bytes.set(payload, last.length);
    last.length = length;
  }

  /** The next payload, or its first `max` bytes; undefined when the queue is empty. */
  take(max: number): Uint8Array | undefined {
    const group = this.#groups[this.#head];
    if (!group) return undefined;
    const size = Math.min(max, group.length);
    const payload = group.bytes.subarray(0, size);
    this.#bytes -= size;
    if (size < group.length) {
      this.#groups[this.#head] = { bytes: group.bytes.subarray(size, group.length), length: group.length - size };
    } else if (++this.#head === this.#groups.length || this.#head > 64) {
      this.#groups = this.#groups.slice(this.#head);
      this.#head = 0;
    } else {
      (this.#groups as (Group | undefined)[])[this.#head - 1] = undefined;
    }
    return payload;
  }

  clear(): void {
    this.#groups = [];
    this.#head = 0;
    this.#bytes = 0;
  }
}
