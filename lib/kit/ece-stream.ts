import { concatBytes, randomBytes } from './bytes.ts';
import { cipher, HEADER, own, TAG } from './ece.ts';

/** Bytes of a record of `encryptRecords`, and of the largest record that is read. */
export const RECORD_SIZE = 64 * 1024;
const MAX_RECORD_SIZE = 1024 * 1024;
/** Delimiter and tag. */
const OVERHEAD = TAG + 1;
const CONTENT = RECORD_SIZE - OVERHEAD;
/** Delimiters that end the plaintext of a record: of any but the last, and of the last (RFC 8188 §2). */
const [RECORD, LAST_RECORD] = [1, 2];

/** Total bytes of the records for that much plaintext. */
export const encryptedSize = (size: number): number =>
  HEADER + size + OVERHEAD * Math.max(1, Math.ceil(size / CONTENT));

type Cipher = Awaited<ReturnType<typeof cipher>>;

/** The nonce of a record is the first nonce XOR the record number (RFC 8188 §2.3). */
function ofRecord({ parameters }: Cipher, sequence: number): Cipher['parameters'] {
  const iv = own(parameters.iv);
  const low = new DataView(iv.buffer, iv.length - 4);
  low.setUint32(0, (low.getUint32(0) ^ sequence) >>> 0);
  return { ...parameters, iv };
}

/**
 * The content coding `aes128gcm` with any number of records (RFC 8188 §2), in chunks: its header, then one chunk per
 * record. `secret` must be used for this content only.
 */
export async function* encryptRecords(
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  secret: Uint8Array,
): AsyncGenerator<Uint8Array> {
  const salt = randomBytes(16);
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, RECORD_SIZE);
  yield concatBytes(salt, size, Uint8Array.of(0));
  const made = await cipher(secret, salt, undefined, 'encrypt');
  const padded = new Uint8Array(CONTENT + 1);
  let [filled, sequence] = [0, 0];
  const encrypt = async (delimiter: number) => {
    padded[filled] = delimiter;
    const parameters = ofRecord(made, sequence++);
    return new Uint8Array(await crypto.subtle.encrypt(parameters, made.key, padded.subarray(0, filled + 1)));
  };
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length; ) {
      // A full record is the last one unless more follows.
      if (filled === CONTENT) {
        yield await encrypt(RECORD);
        filled = 0;
      }
      const some = chunk.subarray(at, at + CONTENT - filled);
      padded.set(some, filled);
      filled += some.length;
      at += some.length;
    }
  }
  yield encrypt(LAST_RECORD);
}

/** Decrypts that coding as it arrives, and buffers at most a record and a chunk. */
export function createDecryptor(secret: Uint8Array) {
  let rest: Uint8Array = new Uint8Array();
  let recordSize = 0;
  let sequence = 0;
  let made: Cipher | undefined;

  async function decrypt(record: Uint8Array, delimiter: number): Promise<Uint8Array> {
    if (!made || record.length < OVERHEAD) throw new RangeError('it is cut short');
    const parameters = ofRecord(made, sequence++);
    const padded = new Uint8Array(await crypto.subtle.decrypt(parameters, made.key, own(record)));
    const end = padded.findLastIndex((byte) => byte !== 0);
    if (padded[end] !== delimiter) throw new RangeError('records are missing, or follow the last one');
    return padded.subarray(0, end);
  }

  /** Consumes the header; false until it is complete. */
  async function begin(): Promise<boolean> {
    const at = HEADER + (rest[HEADER - 1] ?? 0);
    if (made || rest.length < at) return made !== undefined;
    recordSize = new DataView(rest.buffer, rest.byteOffset).getUint32(16);
    if (recordSize <= OVERHEAD || recordSize > MAX_RECORD_SIZE) throw new RangeError('its records have no usable size');
    made = await cipher(secret, rest.subarray(0, 16), undefined, 'decrypt');
    rest = rest.subarray(at);
    return true;
  }

  return {
    /** Returns the plaintext that is available now. Rejects if any of it was changed. */
    async push(chunk: Uint8Array): Promise<Uint8Array[]> {
      rest = concatBytes(rest, chunk);
      const plain: Uint8Array[] = [];
      if (!(await begin())) return plain;
      let at = 0;
      for (; rest.length - at > recordSize; at += recordSize) {
        plain.push(await decrypt(rest.subarray(at, at + recordSize), RECORD));
      }
      rest = rest.slice(at);
      return plain;
    },

    /** Returns the plaintext of the last record. Rejects if that is missing. */
    end: (): Promise<Uint8Array> => decrypt(rest, LAST_RECORD),
  };
}
