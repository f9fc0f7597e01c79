import { bytesToHex, concatBytes, hexToBytes, randomBytes, utf8ToBytes } from '@noble/hashes/utils.js';

export { bytesToHex, concatBytes, hexToBytes, randomBytes, utf8ToBytes };

/** Compares two secret strings in a time that does not depend on where they differ. */
export function timingSafeEqual(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let index = 0; index < a.length; index++) difference |= a.charCodeAt(index) ^ b.charCodeAt(index);
  return difference === 0;
}

/** Bytes up to which neighbouring pieces are joined. */
const JOINED = 1024;

/** Appends bytes to a list of pieces. Joins short ones, since each takes some 200 bytes of memory by itself. */
export function appendJoined(pieces: Uint8Array[], bytes: Uint8Array): void {
  const last = pieces.at(-1);
  if (last && last.length + bytes.length <= JOINED) pieces[pieces.length - 1] = concatBytes(last, bytes);
  else pieces.push(bytes);
}

/** Base64url without padding. */
export function base64url(bytes: Uint8Array): string {
  return base64(bytes).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** Standard base64 with padding. */
export function base64(bytes: Uint8Array): string {
  let binary = '';
  // In slices, since String.fromCharCode takes bytes as arguments and a large input would overflow the stack. By `apply`,
  // because spreading them takes eight times as long (2026-11): audio passes here.
  for (let at = 0; at < bytes.length; at += 8192) {
    binary += String.fromCharCode.apply(null, bytes.subarray(at, at + 8192) as unknown as number[]);
  }
  return btoa(binary);
}

/** Searches for an invalid character, since an anchored match of valid ones would need a stack as large as the text. */
const NOT_BASE64 = /[^A-Za-z0-9+/]/;

/** Decodes standard padded base64; null when the text is anything else. */
export function fromBase64(text: string): Uint8Array | null {
  const digits = text.endsWith('==') ? text.slice(0, -2) : text.endsWith('=') ? text.slice(0, -1) : text;
  if (text.length % 4 !== 0 || NOT_BASE64.test(digits)) return null;
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

/** Decodes base64url, padded or not; null when the text is anything else. */
export function fromBase64url(text: string): Uint8Array | null {
  const digits = text
    .replaceAll('-', '+')
    .replaceAll('_', '/')
    .replace(/={1,2}$/, '');
  return digits.length % 4 === 1 ? null : fromBase64(digits.padEnd(Math.ceil(digits.length / 4) * 4, '='));
}

/** A uniformly random string over `alphabet`; rejection sampling makes every symbol equally likely. */
export function randomString(alphabet: string, length: number): string {
  const bound = 256 - (256 % alphabet.length);
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      if (byte < bound && text.length < length) text += alphabet[byte % alphabet.length];
    }
  }
  return text;
}
