import { sha256 } from '@noble/hashes/sha2.js';
import { base64url, utf8ToBytes } from '../kit/bytes.ts';

/** SHA-256 of the UTF-8 bytes of a token or device id, as a digest. Apart from ids, which pages read without a hash. */
export const digestOf = (text: string): string => base64url(sha256(utf8ToBytes(text)));
