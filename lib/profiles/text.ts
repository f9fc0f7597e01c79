/** UTF-8 without its byte-order mark, or null. Of cut input, a code point that is not whole is left out. */
export function decodeStrictly(bytes: Uint8Array, { cut = false, keepMark = false } = {}): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: keepMark }).decode(bytes, { stream: cut });
  } catch {
    return null;
  }
}
