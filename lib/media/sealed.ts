import { sha256 } from '@noble/hashes/sha2.js';
import { type BoxKey, type Receiver, readSealed, type Sealed, seal } from '../kit/box.ts';
import {
  base64url,
  bytesToHex,
  concatBytes,
  fromBase64url,
  hexToBytes,
  randomBytes,
  utf8ToBytes,
} from '../kit/bytes.ts';
import { createDecryptor, encryptedSize, encryptRecords } from '../kit/ece-stream.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { baseName, DEFAULT_TYPE, mediaType } from './names.ts';

/** Maximum bytes of the head. */
const MAX_HEAD = 64 * 1024;
const LENGTH = 4;

/** Facts of a file, inside its seal. `sha256` is hex. */
export interface SealedFacts {
  name: string;
  type: string;
  size: number;
  sha256: string;
}

/** Maximum bytes of a sealed file whose content has this size. */
export const maxSealedSize = (size: number): number => LENGTH + MAX_HEAD + encryptedSize(size);

/** Token of a sealed upload: the hash of its sealed bytes, so that nobody can store others under it. `sha256` is hex. */
export const sealedToken = (sha256: string): string => base64url(hexToBytes(sha256));

/** True for a token that only a sealed upload may have; all others have 22 characters. */
export const isSealedToken = (token: string): boolean => /^[A-Za-z0-9_-]{43}$/.test(token);

/**
 * A sealed file in chunks: the length of its head as four bytes, the head, and the bytes as records of `aes128gcm`. The head
 * is a sealed text with the facts and the secret of the records.
 */
export async function* sealFile(
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  facts: SealedFacts,
  from: BoxKey,
  to: readonly Receiver[],
): AsyncGenerator<Uint8Array> {
  const secret = randomBytes(32);
  const said = utf8ToBytes(JSON.stringify({ ...facts, secret: base64url(secret) }));
  const head = utf8ToBytes(JSON.stringify(await seal(said, from, to)));
  if (head.length > MAX_HEAD) throw new RangeError('too many receivers');
  const length = new Uint8Array(LENGTH);
  new DataView(length.buffer).setUint32(0, head.length);
  yield concatBytes(length, head);
  yield* encryptRecords(chunks, secret);
}

/**
 * Opens a sealed file as it arrives, and buffers at most its head or one record. `openHead` opens the text of the head.
 * Rejects for any error, in which case earlier output must not be used.
 */
export function createFileOpener(openHead: (head: Sealed) => Promise<Uint8Array>, maxSize: number) {
  let head: Uint8Array = new Uint8Array();
  let opened: { facts: SealedFacts; decryptor: ReturnType<typeof createDecryptor> } | undefined;
  const hash = sha256.create();
  let size = 0;

  async function begin(): Promise<Uint8Array | undefined> {
    if (head.length < LENGTH) return undefined;
    const end = LENGTH + new DataView(head.buffer, head.byteOffset).getUint32(0);
    if (end > LENGTH + MAX_HEAD) throw new RangeError('its head is too long');
    if (head.length < end) return undefined;
    const sealed = readSealed(parseObject(decodeUtf8(head.subarray(LENGTH, end))));
    if (!sealed) throw new RangeError('its head is malformed');
    const { secret, facts } = read(await openHead(sealed));
    if (facts.size > maxSize) throw new RangeError('it is larger than this relay takes');
    opened = { facts, decryptor: createDecryptor(secret) };
    const rest = head.subarray(end);
    head = new Uint8Array();
    return rest;
  }

  function count(plain: Uint8Array): Uint8Array {
    size += plain.length;
    if (size > (opened?.facts.size ?? 0)) throw new RangeError('it is longer than it says');
    hash.update(plain);
    return plain;
  }

  return {
    /** Returns the bytes of the file that are available now. */
    async push(chunk: Uint8Array): Promise<Uint8Array[]> {
      let rest: Uint8Array | undefined = chunk;
      if (!opened) {
        head = concatBytes(head, chunk);
        rest = await begin();
      }
      if (!opened || !rest) return [];
      return (await opened.decryptor.push(rest)).map(count);
    },

    /** Returns the last bytes, and the facts, of a complete file. */
    async end(): Promise<{ last: Uint8Array; facts: SealedFacts }> {
      if (!opened) throw new RangeError('it is cut short');
      const { facts, decryptor } = opened;
      const last = count(await decryptor.end());
      if (size !== facts.size || bytesToHex(hash.digest()) !== facts.sha256) {
        throw new RangeError('its bytes are not those of its SHA-256');
      }
      return { last, facts };
    },
  };
}

/** @throws RangeError for anything but the head of a sealed file. */
function read(bytes: Uint8Array): { secret: Uint8Array; facts: SealedFacts } {
  const { name, type, size, sha256, secret: text } = parseObject(decodeUtf8(bytes)) ?? {};
  const secret = typeof text === 'string' ? fromBase64url(text) : null;
  if (secret?.length !== 32 || typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) {
    throw new RangeError('its head cannot be read');
  }
  const facts = {
    name: baseName(typeof name === 'string' ? name : '') ?? 'upload.bin',
    type: mediaType(typeof type === 'string' ? type : '') ?? DEFAULT_TYPE,
    size,
    sha256: String(sha256),
  };
  return { secret, facts };
}
