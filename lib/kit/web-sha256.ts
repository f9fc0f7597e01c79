import { base64url, utf8ToBytes } from './bytes.ts';

/** SHA-256 by Web Crypto, so that a page needs no other code for it. */
export const webSha256 = async (bytes: Uint8Array): Promise<Uint8Array> =>
  new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as BufferSource));

/** Base64url SHA-256 of a string's UTF-8 bytes. */
export const webDigestOf = async (text: string): Promise<string> => base64url(await webSha256(utf8ToBytes(text)));
