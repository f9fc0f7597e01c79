import { utf8ToBytes } from './bytes.ts';

/** OWASP's figure for PBKDF2 with SHA-256 (2023). */
const ITERATIONS = 600_000;
export const SALT_BYTES = 16;
/** Minimum characters of a passphrase for a new file. */
export const MIN_PASSPHRASE = 10;

/**
 * The AES-256-GCM key of a file behind a passphrase: PBKDF2 with SHA-256, 600,000 rounds (specification 2.1). In a browser,
 * this needs a secure context.
 */
export async function passphraseKey(
  passphrase: string,
  salt: Uint8Array,
  usage: 'encrypt' | 'decrypt',
): Promise<CryptoKey> {
  // Keyboards enter the same letter as one code point or as two.
  const typed = utf8ToBytes(passphrase.normalize('NFKC')) as BufferSource;
  const secret = await crypto.subtle.importKey('raw', typed, 'PBKDF2', false, ['deriveKey']);
  const derivation = { name: 'PBKDF2', hash: 'SHA-256', salt: salt as BufferSource, iterations: ITERATIONS };
  return crypto.subtle.deriveKey(derivation, secret, { name: 'AES-GCM', length: 256 }, false, [usage]);
}
