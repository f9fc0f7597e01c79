import { concatBytes, randomBytes, utf8ToBytes } from '../kit/bytes.ts';

/** The keys of a subscription as the device made them: an uncompressed P-256 point, and 16 secret bytes. */
export interface ReceiverKeys {
  p256dh: Uint8Array;
  auth: Uint8Array;
}

/** Salt and key pair of one message, new for each. Tests give those of the RFC. */
export interface Ephemeral {
  salt: Uint8Array;
  pair: CryptoKeyPair;
}

const CURVE = { name: 'ECDH', namedCurve: 'P-256' };
/** Push services accept 4,096 bytes at least (RFC 8030 §7.2), of which header, delimiter and tag take 103. */
export const MAX_PLAINTEXT = 3993;
const RECORD_SIZE = 4096;
/** Ends the plaintext of the last record (RFC 8188 §2). */
const LAST_RECORD = 2;

/** True if the bytes are a point of P-256, uncompressed. */
export async function isPublicKey(bytes: Uint8Array): Promise<boolean> {
  if (bytes.length !== 65 || bytes[0] !== 4) return false;
  return importPoint(bytes).then(
    () => true,
    () => false,
  );
}

/** A message body in the content coding `aes128gcm`, in one record (RFC 8291 §3 and §4, RFC 8188 §2). */
export async function encryptMessage(
  plaintext: Uint8Array,
  { p256dh, auth }: ReceiverKeys,
  ephemeral?: Ephemeral,
): Promise<Uint8Array> {
  const { salt, pair } = ephemeral ?? { salt: randomBytes(16), pair: await newPair() };
  const [receiver, sender] = await Promise.all([importPoint(p256dh), crypto.subtle.exportKey('raw', pair.publicKey)]);
  const ownPoint = new Uint8Array(sender);
  const shared = await crypto.subtle.deriveBits({ name: 'ECDH', public: receiver }, pair.privateKey, 256);
  const info = concatBytes(utf8ToBytes('WebPush: info\0'), p256dh, ownPoint);
  const secret = await derive(new Uint8Array(shared), auth, info, 32);
  const [key, iv] = await Promise.all([
    derive(secret, salt, utf8ToBytes('Content-Encoding: aes128gcm\0'), 16),
    derive(secret, salt, utf8ToBytes('Content-Encoding: nonce\0'), 12),
  ]);
  const imported = await crypto.subtle.importKey('raw', own(key), 'AES-GCM', false, ['encrypt']);
  const record = concatBytes(plaintext, Uint8Array.of(LAST_RECORD));
  const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv: own(iv) }, imported, own(record));
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, RECORD_SIZE);
  return concatBytes(salt, size, Uint8Array.of(ownPoint.length), ownPoint, new Uint8Array(sealed));
}

const newPair = () => crypto.subtle.generateKey(CURVE, true, ['deriveBits']) as Promise<CryptoKeyPair>;

const importPoint = (point: Uint8Array): Promise<CryptoKey> =>
  crypto.subtle.importKey('raw', own(point), CURVE, false, []);

/** HKDF with SHA-256 (RFC 5869), extract and expand. */
async function derive(secret: Uint8Array, salt: Uint8Array, info: Uint8Array, length: number): Promise<Uint8Array> {
  const key = await crypto.subtle.importKey('raw', own(secret), 'HKDF', false, ['deriveBits']);
  const parameters = { name: 'HKDF', hash: 'SHA-256', salt: own(salt), info: own(info) };
  return new Uint8Array(await crypto.subtle.deriveBits(parameters, key, length * 8));
}

/** For Web Crypto, whose types rule out shared memory. */
const own = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(bytes);
