import { concatBytes, randomBytes, utf8ToBytes } from './bytes.ts';

const CURVE = { name: 'ECDH', namedCurve: 'P-256' };
export const HEADER = 21;
export const TAG = 16;
/** Ends the plaintext of the last record (RFC 8188 §2). */
const LAST_RECORD = 2;

/** Salt and key pair of one message, new for each. Tests pass those of the RFC. */
export interface Ephemeral {
  salt: Uint8Array;
  pair: CryptoKeyPair;
}

export const newEphemeral = async (): Promise<Ephemeral> => ({ salt: randomBytes(16), pair: await newPair(true) });

/** A key pair of P-256 for `agree`. */
export const newPair = (isExtractable: boolean): Promise<CryptoKeyPair> =>
  crypto.subtle.generateKey(CURVE, isExtractable, ['deriveBits']) as Promise<CryptoKeyPair>;

/** The uncompressed point of a public key. */
export const pointOf = async ({ publicKey }: CryptoKeyPair): Promise<Uint8Array> =>
  new Uint8Array(await crypto.subtle.exportKey('raw', publicKey));

/** True if the bytes are a point of P-256, uncompressed. */
export async function isPoint(bytes: Uint8Array): Promise<boolean> {
  if (bytes.length !== 65 || bytes[0] !== 4) return false;
  return importPoint(bytes).then(
    () => true,
    () => false,
  );
}

/** The secret that a private key shares with the owner of a point. Rejects for bytes that are not a point. */
export async function agree(privateKey: CryptoKey, point: Uint8Array): Promise<Uint8Array> {
  const parameters = { name: 'ECDH', public: await importPoint(point) };
  return new Uint8Array(await crypto.subtle.deriveBits(parameters, privateKey, 256));
}

const importPoint = (point: Uint8Array): Promise<CryptoKey> =>
  crypto.subtle.importKey('raw', own(point), CURVE, false, []);

/** HKDF with SHA-256 (RFC 5869), extract and expand. */
export async function derive(
  secret: Uint8Array,
  { salt, info, length }: { salt: Uint8Array; info: Uint8Array; length: number },
): Promise<Uint8Array> {
  const key = await crypto.subtle.importKey('raw', own(secret), 'HKDF', false, ['deriveBits']);
  const parameters = { name: 'HKDF', hash: 'SHA-256', salt: own(salt), info: own(info) };
  return new Uint8Array(await crypto.subtle.deriveBits(parameters, key, length * 8));
}

/** Keys that protect a record. */
export interface Protection {
  secret: Uint8Array;
  /** Authenticated with the record, but not sent. */
  context?: Uint8Array;
}

/**
 * One record in the content coding `aes128gcm` (RFC 8188 §2): salt, record size, key id and ciphertext. Its key derives
 * from the salt, which is new for each record.
 */
export async function encryptRecord(
  plaintext: Uint8Array,
  {
    secret,
    salt,
    keyId,
    recordSize,
    context,
  }: Protection & { salt: Uint8Array; keyId: Uint8Array; recordSize: number },
): Promise<Uint8Array> {
  const { key, parameters } = await cipher(secret, salt, context, 'encrypt');
  const padded = concatBytes(plaintext, Uint8Array.of(LAST_RECORD));
  const sealed = await crypto.subtle.encrypt(parameters, key, own(padded));
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, recordSize);
  return concatBytes(salt, size, Uint8Array.of(keyId.length), keyId, new Uint8Array(sealed));
}

interface Header {
  salt: Uint8Array;
  recordSize: number;
  keyId: Uint8Array;
  /** Offset of the ciphertext. */
  at: number;
}

/** The header of a record. @throws RangeError if it is truncated. */
export function readHeader(record: Uint8Array): Header {
  const at = HEADER + (record[HEADER - 1] ?? 0);
  if (record.length < at + TAG + 1) throw new RangeError('the record is cut short');
  const recordSize = new DataView(record.buffer, record.byteOffset).getUint32(16);
  return { salt: record.subarray(0, 16), recordSize, keyId: record.subarray(HEADER, at), at };
}

/** The plaintext of a single record. Rejects if any of it, or the context, differs. */
export async function decryptRecord(record: Uint8Array, { secret, context }: Protection): Promise<Uint8Array> {
  const { salt, recordSize, at } = readHeader(record);
  if (recordSize < record.length - at) throw new RangeError('there is more than one record');
  const { key, parameters } = await cipher(secret, salt, context, 'decrypt');
  const padded = new Uint8Array(await crypto.subtle.decrypt(parameters, key, own(record.subarray(at))));
  const end = padded.findLastIndex((byte) => byte !== 0);
  if (padded[end] !== LAST_RECORD) throw new RangeError('there is more than one record');
  return padded.subarray(0, end);
}

/** Key of the records under a secret, and the parameters of the first one. */
export async function cipher(
  secret: Uint8Array,
  salt: Uint8Array,
  context: Uint8Array | undefined,
  usage: 'encrypt' | 'decrypt',
) {
  const [key, iv] = await Promise.all([
    derive(secret, { salt, info: utf8ToBytes('Content-Encoding: aes128gcm\0'), length: 16 }),
    derive(secret, { salt, info: utf8ToBytes('Content-Encoding: nonce\0'), length: 12 }),
  ]);
  const imported = await crypto.subtle.importKey('raw', own(key), 'AES-GCM', false, [usage]);
  const parameters = { name: 'AES-GCM', iv: own(iv), ...(context && { additionalData: own(context) }) };
  return { key: imported, parameters };
}

/** Narrows the type for Web Crypto, which excludes shared memory. */
export const own = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(bytes);
