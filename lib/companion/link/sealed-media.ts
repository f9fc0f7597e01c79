import { sha256 } from '@noble/hashes/sha2.js';
import { RelayError } from '../../errors.ts';
import { type BoxKey, keyIdOf, open } from '../../kit/box.ts';
import { bytesToHex, concatBytes } from '../../kit/bytes.ts';
import { createFileOpener, SEALED_NAME, SEALED_TYPE, sealedToken, sealFile } from '../../media/sealed.ts';
import { contextOf } from '../../phone/sealed.ts';
import type { UploadFile } from '../types.ts';

/** A device's key, home's, and the id under which home knows the device. */
export interface MediaKeys {
  own: BoxKey;
  home: Uint8Array;
  deviceId: string;
}

const uploadContext = async ({ home, deviceId }: MediaKeys): Promise<string> =>
  contextOf({ direction: 'to-home', kind: 'upload', id: '', deviceId, epoch: await keyIdOf(home) });

/** A file as a device uploads it at its mailbox: sealed for home and for itself, and the token that it gets there. */
export async function sealUpload(file: UploadFile, keys: MediaKeys): Promise<{ file: UploadFile; token: string }> {
  const { name, type, bytes } = file;
  const context = await uploadContext(keys);
  const to = [keys.home, keys.own.point].map((point) => ({ point, context }));
  const facts = { name, type, size: bytes.length, sha256: bytesToHex(sha256(bytes)) };
  const chunks: Uint8Array[] = [];
  for await (const chunk of sealFile([bytes], facts, keys.own, to)) chunks.push(chunk);
  const sealed = concatBytes(...chunks);
  const token = sealedToken(bytesToHex(sha256(sealed)));
  return { file: { name: SEALED_NAME, type: SEALED_TYPE, bytes: sealed }, token };
}

/**
 * A file of the mailbox, opened. @throws RelayError `bad-gateway` when it is not what this device has uploaded under the token.
 */
export async function openUpload(bytes: Uint8Array, token: string, keys: MediaKeys): Promise<UploadFile> {
  try {
    if (sealedToken(bytesToHex(sha256(bytes))) !== token) throw new RangeError('it is another file');
    const from = { from: keys.own.point, context: await uploadContext(keys) };
    const opener = createFileOpener((head) => open(head, keys.own, from), bytes.length);
    const plain = await opener.push(bytes);
    const { last, facts } = await opener.end();
    return { name: facts.name, type: facts.type, bytes: concatBytes(...plain, last) };
  } catch (cause) {
    throw new RelayError('bad-gateway', 'the sealed file cannot be opened', { cause });
  }
}
