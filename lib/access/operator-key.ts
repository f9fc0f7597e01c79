import type { HostFiles } from '../host/index.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { decodeUtf8 } from '../kit/text.ts';
import type { Log } from '../log.ts';

/** Carries the key (contract 01 §1.3 rule 6). */
export const OPERATOR_KEY_HEADER = 'x-svc-operator-key';

export const operatorKeyPath = (agentHome: string): string => `${agentHome}/svc-relay/operator-key`;

const SIZE = 32;
/** Base64url of 32 bytes. */
const FORM = /^[\w-]{43}$/;
const ATTEMPTS = 3;

/** The key in a file's text; null when it holds none. */
export function parseOperatorKey(text: string): string | null {
  const key = text.trim();
  return FORM.test(key) ? key : null;
}

export const newOperatorKey = (): string => base64url(randomBytes(SIZE));

/**
 * The current key; null if the file is missing, damaged, or readable by other accounts.
 * @throws when the file cannot be read.
 */
export async function readOperatorKey(files: HostFiles, path: string): Promise<string | null> {
  const [facts, bytes] = [await files.stat(path), await files.read(path, 1024)];
  return facts && bytes && (facts.mode & 0o077) === 0 ? parseOperatorKey(decodeUtf8(bytes)) : null;
}

/**
 * Reads the key that makes any local caller the operator, or creates it (mode 0600). A key that other accounts could
 * read, or a damaged one, is replaced with a warning.
 * @throws when the file can be neither read nor written.
 */
export async function openOperatorKey(files: HostFiles, path: string, log: Log): Promise<string> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const [facts, bytes] = [await files.stat(path), await files.read(path, 1024)];
    const key = bytes && parseOperatorKey(decodeUtf8(bytes));
    if (facts && key && (facts.mode & 0o077) === 0) return key;
    if (bytes) {
      log.warn(`the operator key ${key ? 'could be read by other accounts' : 'was damaged'} and is replaced`);
      await files.remove(path);
    }
    const fresh = newOperatorKey();
    try {
      await files.createExclusive(path, new TextEncoder().encode(fresh), 0o600);
      return fresh;
    } catch (error) {
      // Another process has just created it; the next attempt reads that key.
      if ((error as { code?: unknown }).code !== 'EEXIST') throw error;
    }
  }
  throw new Error('the file keeps appearing and disappearing');
}
