import { base64url, fromBase64url, randomBytes } from '../kit/bytes.ts';

/** Bytes of an ID: of a host, a connection or a stream. */
export const ID_BYTES = 16;

/** The last character of a canonical ID contains two bits of the last byte, that of a digest four; the rest is zero. */
const ID = /^[A-Za-z0-9_-]{21}[AQgw]$/;
const DIGEST = /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/;

/** True if the value is an ID: canonical unpadded base64url of exactly 16 bytes (contract 08, conventions). */
export const isId = (value: unknown): value is string => typeof value === 'string' && ID.test(value);

/** True if the value can be a digest: canonical unpadded base64url of 32 bytes. */
export const isDigest = (value: unknown): value is string => typeof value === 'string' && DIGEST.test(value);

/** True if the value has the length of a token: 32 to 512 characters. */
export const isToken = (value: unknown): value is string =>
  typeof value === 'string' && value.length >= 32 && value.length <= 512;

/** A random ID. It never begins with a hyphen: `--host-id <id>` would take it for another option. */
export function newId(): string {
  const id = base64url(randomBytes(ID_BYTES));
  return id.startsWith('-') ? newId() : id;
}

/** A token of a bootstrap or route credential: 32 random bytes in 43 characters. */
export const newToken = (): string => base64url(randomBytes(32));

/** The ID of 16 bytes. */
export const idOfBytes = (bytes: Uint8Array): string => base64url(bytes);

/** The 16 bytes of a canonical ID. @throws Error for any other text. */
export function bytesOfId(id: string): Uint8Array {
  const bytes = isId(id) ? fromBase64url(id) : null;
  if (!bytes) throw new Error('not an ID');
  return bytes;
}

/** The part of an ID that a log line may contain (contract 08 §7.7). */
export const shortId = (id: string): string => id.slice(0, 6);
