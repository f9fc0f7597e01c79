import { concatBytes, utf8ToBytes } from '../kit/bytes.ts';
import { agree, derive, type Ephemeral, encryptRecord, newEphemeral, pointOf } from '../kit/ece.ts';

/** The keys of a subscription as the device made them: an uncompressed P-256 point, and 16 secret bytes. */
export interface ReceiverKeys {
  p256dh: Uint8Array;
  auth: Uint8Array;
}

/**
 * Maximum bytes of a plaintext. Push services accept 4,096 bytes at least (RFC 8030 §7.2), of which header, delimiter and
 * tag take 103.
 */
export const MAX_PLAINTEXT = 3993;
const RECORD_SIZE = 4096;

/** A message body in the content coding `aes128gcm`, in one record (RFC 8291 §3 and §4, RFC 8188 §2). */
export async function encryptMessage(
  plaintext: Uint8Array,
  { p256dh, auth }: ReceiverKeys,
  ephemeral?: Ephemeral,
): Promise<Uint8Array> {
  const { salt, pair } = ephemeral ?? (await newEphemeral());
  const [shared, keyId] = await Promise.all([agree(pair.privateKey, p256dh), pointOf(pair)]);
  const info = concatBytes(utf8ToBytes('WebPush: info\0'), p256dh, keyId);
  const secret = await derive(shared, { salt: auth, info, length: 32 });
  return encryptRecord(plaintext, { secret, salt, keyId, recordSize: RECORD_SIZE });
}
