import { sha256 as sha256Bytes } from '@noble/hashes/sha2.js';
import { base64url, bytesToHex, utf8ToBytes } from './bytes.ts';

/**
 * Lower-case hex SHA-256 of a string's UTF-8 bytes. Synchronous, so that a check-and-set needs no await in between. In a file
 * of its own: the pages need bytes at once, and a hash only for files.
 */
export const sha256 = (text: string): string => bytesToHex(sha256Bytes(utf8ToBytes(text)));

/** The same, base64url. */
export const digestOf = (text: string): string => base64url(sha256Bytes(utf8ToBytes(text)));
