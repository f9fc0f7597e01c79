import { RelayError } from '../errors.ts';
import { base64, fromBase64, randomBytes, utf8ToBytes } from '../kit/bytes.ts';
import { asObject, type JsonObject, parseObject } from '../kit/json.ts';
import { passphraseKey, SALT_BYTES } from '../kit/passphrase.ts';
import { decodeUtf8 } from '../kit/text.ts';

/** Contents of a backup: the settings of one companion and its pairing, with the tokens. Apps and terminals share it. */
export interface Backup {
  /** Settings by their keys of specification 2.1; each companion reads the keys that it knows. */
  settings: JsonObject;
  pairing: JsonObject | null;
  /** The device id of `pairing` at the relay. */
  deviceId: string | null;
}

const FORMAT = 1;
const IV_BYTES = 12;
/** Maximum characters of a backup; a larger file is not read to its end. */
export const MAX_BACKUP = 1024 * 1024;

/** Encrypts a backup with a passphrase, as JSON text. In a browser, this needs a secure context. */
export async function sealBackup({ settings, pairing, deviceId }: Backup, passphrase: string): Promise<string> {
  const [salt, iv] = [randomBytes(SALT_BYTES), randomBytes(IV_BYTES)];
  const plain = utf8ToBytes(JSON.stringify({ settings, pairing, device_id: deviceId }));
  const key = await passphraseKey(passphrase, salt, 'encrypt');
  const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv: iv as BufferSource }, key, plain as BufferSource);
  return JSON.stringify({
    svc_backup: FORMAT,
    salt: base64(salt),
    iv: base64(iv),
    data: base64(new Uint8Array(sealed)),
  });
}

interface SealedBackup {
  salt: Uint8Array;
  iv: Uint8Array;
  data: Uint8Array;
}

/**
 * Parses a backup that is still sealed.
 * @throws RelayError with a sentence for the user: `too-large`, or `unsupported-media` for another file.
 */
export function readSealed(text: string): SealedBackup {
  if (text.length > MAX_BACKUP) throw new RelayError('too-large', 'This file is larger than any backup.');
  const file = parseObject(text);
  const [salt, iv, data] = [file?.salt, file?.iv, file?.data].map((part) =>
    typeof part === 'string' ? fromBase64(part) : null,
  );
  if (file?.svc_backup !== FORMAT || salt?.length !== SALT_BYTES || iv?.length !== IV_BYTES || !data) {
    throw new RelayError('unsupported-media', 'This file is no backup of this app.');
  }
  return { salt, iv, data };
}

/**
 * Opens a backup.
 * @throws RelayError like `readSealed`, and `forbidden` for a wrong passphrase or a changed file.
 */
export async function openBackup(text: string, passphrase: string): Promise<Backup> {
  const { salt, iv, data } = readSealed(text);
  const key = await passphraseKey(passphrase, salt, 'decrypt');
  const plain = await crypto.subtle
    .decrypt({ name: 'AES-GCM', iv: iv as BufferSource }, key, data as BufferSource)
    .catch(() => {
      throw new RelayError('forbidden', 'The passphrase is not that of this backup.');
    });
  const { settings, pairing, device_id: deviceId } = parseObject(decodeUtf8(new Uint8Array(plain))) ?? {};
  return {
    settings: asObject(settings) ?? {},
    pairing: asObject(pairing),
    deviceId: typeof deviceId === 'string' ? deviceId : null,
  };
}
