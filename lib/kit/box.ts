import { base64url, bytesToHex, concatBytes, fromBase64url, randomBytes, utf8ToBytes } from './bytes.ts';
import { agree, decryptRecord, derive, encryptRecord, newEphemeral, newPair, pointOf, readHeader } from './ece.ts';
import { isObject } from './json.ts';
import { webSha256 } from './web-sha256.ts';

/** Bytes that can be sealed at once. */
export const MAX_SEALED = 1024 * 1024;
/** Maximum receivers of one sealed text. */
export const MAX_RECEIVERS = 64;
const MAX_CONTENT = Math.ceil(((MAX_SEALED + 128) * 4) / 3);
/** Base64url length of the record with a content key, which always has 135 bytes. */
const KEY_RECORD_SIZE = 4096;
const KEY_CHARACTERS = 180;
const KEY_ID = /^[0-9a-f]{16}$/;

/** The key pair that seals and opens. The private key may be non-extractable. */
export interface BoxKey {
  privateKey: CryptoKey;
  /** Uncompressed. */
  point: Uint8Array;
}

/** A receiver that can open the sealed text. `context` is authenticated: opening it needs the same context. */
export interface Receiver {
  point: Uint8Array;
  context: string;
}

/** A sealed text as JSON: `by` names the key of the sender, `keys` holds the content key for each receiver. */
export type Sealed = { by: string; content: string; keys: Record<string, string> };

/** Names a public key without revealing it. */
export const keyIdOf = async (point: Uint8Array): Promise<string> => bytesToHex(await webSha256(point)).slice(0, 16);

export async function newBoxKey(isExtractable = true): Promise<BoxKey> {
  const pair = await newPair(isExtractable);
  return { privateKey: pair.privateKey, point: await pointOf(pair) };
}

/** PKCS #8, base64url. */
export const exportBoxKey = async ({ privateKey }: BoxKey): Promise<string> =>
  base64url(new Uint8Array(await crypto.subtle.exportKey('pkcs8', privateKey)));

/** Rejects for anything but an export of `exportBoxKey`, and for a point that does not match the key. */
export async function importBoxKey(pkcs8: string, point: Uint8Array): Promise<BoxKey> {
  const bytes = new Uint8Array(fromBase64url(pkcs8) ?? []);
  const curve = { name: 'ECDH', namedCurve: 'P-256' };
  const privateKey = await crypto.subtle.importKey('pkcs8', bytes, curve, true, ['deriveBits']);
  const { x = '', y = '' } = await crypto.subtle.exportKey('jwk', privateKey);
  if (base64url(point.subarray(1, 33)) !== x || base64url(point.subarray(33)) !== y) {
    throw new RangeError('the private key is another one');
  }
  return { privateKey, point };
}

/**
 * Seals for several receivers (contract 12 §4). Each gets the content key in a record whose secret comes from two
 * agreements: of a new key with the receiver's, as in web push, and of the sender's own key with it, so that only one
 * of the two can have made it. The record is bound to this content and to the receiver's context.
 * @throws RangeError for more than `MAX_SEALED` bytes or `MAX_RECEIVERS` receivers.
 */
export async function seal(plaintext: Uint8Array, from: BoxKey, to: readonly Receiver[]): Promise<Sealed> {
  if (plaintext.length > MAX_SEALED) throw new RangeError('too long to be sealed');
  if (to.length > MAX_RECEIVERS) throw new RangeError('too many receivers');
  const secret = randomBytes(32);
  const recordSize = Math.max(4096, plaintext.length + 17);
  const content = await encryptRecord(plaintext, {
    secret,
    salt: randomBytes(16),
    keyId: new Uint8Array(),
    recordSize,
  });
  const digest = await webSha256(content);
  const keys = await Promise.all(
    to.map(async (receiver): Promise<[string, string]> => {
      const { salt, pair } = await newEphemeral();
      const keyId = await pointOf(pair);
      const [fresh, lasting] = await Promise.all([
        agree(pair.privateKey, receiver.point),
        agree(from.privateKey, receiver.point),
      ]);
      const wrapping = await wrappingSecret({ fresh, lasting, sender: from.point, receiver: receiver.point, keyId });
      const protection = { secret: wrapping, context: contextOf(receiver.context, digest) };
      const wrapped = await encryptRecord(secret, { ...protection, salt, keyId, recordSize: KEY_RECORD_SIZE });
      return [await keyIdOf(receiver.point), base64url(wrapped)];
    }),
  );
  return { by: await keyIdOf(from.point), content: base64url(content), keys: Object.fromEntries(keys) };
}

/** Opens a text that the owner of the point `from` sealed for this key and context. Rejects if any of these differs. */
export async function open(
  sealed: Sealed,
  as: BoxKey,
  { from, context }: { from: Uint8Array; context: string },
): Promise<Uint8Array> {
  const [own, sender] = await Promise.all([keyIdOf(as.point), keyIdOf(from)]);
  const wrapped = bytesOf((Object.hasOwn(sealed.keys, own) ? sealed.keys[own] : undefined) ?? '');
  if (wrapped.length === 0) throw new RangeError('it is not sealed for this key');
  if (sealed.by !== sender) throw new RangeError('another key has sealed it');
  const content = bytesOf(sealed.content);
  const { keyId, recordSize } = readHeader(wrapped);
  // The only part of the header that does not influence its key.
  if (recordSize !== KEY_RECORD_SIZE) throw new RangeError('the header was changed');
  const [fresh, lasting] = await Promise.all([agree(as.privateKey, keyId), agree(as.privateKey, from)]);
  const wrapping = await wrappingSecret({ fresh, lasting, sender: from, receiver: as.point, keyId });
  const protection = { secret: wrapping, context: contextOf(context, await webSha256(content)) };
  return decryptRecord(content, { secret: await decryptRecord(wrapped, protection) });
}

/** Reads a sealed text from the wire or a store; undefined for anything else. */
export function readSealed(value: unknown): Sealed | undefined {
  if (!isObject(value) || !isObject(value.keys)) return undefined;
  const { by, content } = value;
  const keys = Object.entries(value.keys);
  const areKeys = keys.every(
    ([id, key]) => KEY_ID.test(id) && typeof key === 'string' && key.length === KEY_CHARACTERS,
  );
  if (typeof by !== 'string' || !KEY_ID.test(by) || typeof content !== 'string') return undefined;
  if (content.length > MAX_CONTENT || keys.length < 1 || keys.length > MAX_RECEIVERS || !areKeys) return undefined;
  return { by, content, keys: Object.fromEntries(keys) as Record<string, string> };
}

const wrappingSecret = ({ fresh, lasting, sender, receiver, keyId }: Agreements) =>
  derive(fresh, {
    salt: lasting,
    info: concatBytes(utf8ToBytes('svc-relay sealed v1\0'), sender, receiver, keyId),
    length: 32,
  });

/** The bytes of a base64url text. @throws RangeError for any other spelling of the same bytes. */
function bytesOf(text: string): Uint8Array {
  const bytes = fromBase64url(text);
  if (!bytes || base64url(bytes) !== text) throw new RangeError('it is no base64url');
  return bytes;
}

interface Agreements {
  fresh: Uint8Array;
  lasting: Uint8Array;
  sender: Uint8Array;
  receiver: Uint8Array;
  keyId: Uint8Array;
}

const contextOf = (context: string, digest: Uint8Array): Uint8Array => concatBytes(digest, utf8ToBytes(context));
