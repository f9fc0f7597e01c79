import { base64, fromBase64 } from '../../../lib/kit/bytes.ts';
import { asObject, parseObject } from '../../../lib/kit/json.ts';

/** Contents of a backup: the settings of this browser and its pairing, with the tokens. */
export interface Backup {
  settings: Record<string, unknown>;
  pairing: Record<string, unknown> | null;
}

const FORMAT = 1;
/** OWASP's figure for PBKDF2 with SHA-256 (2023). */
const ITERATIONS = 600_000;
export const MIN_PASSPHRASE = 10;

async function keyOf(passphrase: string, salt: Uint8Array, usage: 'encrypt' | 'decrypt'): Promise<CryptoKey> {
  const secret = await crypto.subtle.importKey('raw', new TextEncoder().encode(passphrase), 'PBKDF2', false, [
    'deriveKey',
  ]);
  const derivation = { name: 'PBKDF2', hash: 'SHA-256', salt: salt as BufferSource, iterations: ITERATIONS };
  return crypto.subtle.deriveKey(derivation, secret, { name: 'AES-GCM', length: 256 }, false, [usage]);
}

/** Seals a backup behind a passphrase. Needs a secure context. */
export async function sealBackup(backup: Backup, passphrase: string): Promise<string> {
  const salt = crypto.getRandomValues(new Uint8Array(16));
  const iv = crypto.getRandomValues(new Uint8Array(12));
  const plain = new TextEncoder().encode(JSON.stringify(backup));
  const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv }, await keyOf(passphrase, salt, 'encrypt'), plain);
  return JSON.stringify({
    svc_backup: FORMAT,
    salt: base64(salt),
    iv: base64(iv),
    data: base64(new Uint8Array(sealed)),
  });
}

/** Opens a backup. @throws Error with a sentence for people: another file, or another passphrase. */
export async function openBackup(text: string, passphrase: string): Promise<Backup> {
  const file = parseObject(text);
  const [salt, iv, data] = [file?.salt, file?.iv, file?.data].map((part) =>
    typeof part === 'string' ? fromBase64(part) : null,
  );
  if (file?.svc_backup !== FORMAT || !salt || !iv || !data) throw new Error('This file is no backup of this app.');
  const key = await keyOf(passphrase, salt, 'decrypt');
  const plain = await crypto.subtle
    .decrypt({ name: 'AES-GCM', iv: iv as BufferSource }, key, data as BufferSource)
    .catch(() => {
      throw new Error('The passphrase is not that of this backup.');
    });
  const { settings, pairing } = parseObject(new TextDecoder().decode(plain)) ?? {};
  return { settings: asObject(settings) ?? {}, pairing: asObject(pairing) };
}
