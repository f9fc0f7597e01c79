import { sha256 } from '@noble/hashes/sha2.js';
import { RelayError } from '../../errors.ts';
import { type BoxKey, keyIdOf, open } from '../../kit/box.ts';
import { bytesToHex, concatBytes } from '../../kit/bytes.ts';
import { createFileOpener, sealedToken, sealFile } from '../../media/sealed.ts';
import { SEALED_NAME, SEALED_TYPE } from '../../media/sealed-type.ts';
import { contextOf } from '../../phone/sealed.ts';
import type { UploadFile } from '../types.ts';

/** The keys of a device and its home, and the device's id at home. */
export interface MediaKeys {
  own: BoxKey;
  home: Uint8Array;
  deviceId: string;
}

const uploadContext = async ({ home, deviceId }: MediaKeys): Promise<string> =>
  contextOf({ direction: 'to-home', kind: 'upload', id: '', deviceId, epoch: await keyIdOf(home) });

/** A file to be sealed. Its bytes are read twice. */
export interface PlainFile {
  name: string;
  type: string;
  size: number;
  chunks(): Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
}

type Write = (chunk: Uint8Array) => void;

/**
 * Seals a file as a device uploads it at its mailbox, for home and for itself: `write` gets it in chunks of a record.
 * Resolves with the token that it gets there.
 */
export async function sealInto(
  write: Write,
  { name, type, size, chunks }: PlainFile,
  keys: MediaKeys,
): Promise<string> {
  const context = await uploadContext(keys);
  const to = [keys.home, keys.own.point].map((point) => ({ point, context }));
  const [plain, sealed] = [sha256.create(), sha256.create()];
  for await (const chunk of chunks()) plain.update(chunk);
  const facts = { name, type, size, sha256: bytesToHex(plain.digest()) };
  for await (const chunk of sealFile(chunks(), facts, keys.own, to)) {
    sealed.update(chunk);
    write(chunk);
  }
  return sealedToken(bytesToHex(sealed.digest()));
}

/**
 * Opens a file of the mailbox as it arrives, and holds a record and a chunk of it at most. What `write` gets counts only once
 * this resolves. @throws RelayError `bad-gateway` when it is not what this device has uploaded under the token.
 */
export async function openInto(
  write: Write,
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  { token, keys, maxSize }: { token: string; keys: MediaKeys; maxSize: number },
): Promise<Omit<UploadFile, 'bytes'>> {
  try {
    const from = { from: keys.own.point, context: await uploadContext(keys) };
    const opener = createFileOpener((head) => open(head, keys.own, from), maxSize);
    const hash = sha256.create();
    for await (const chunk of chunks) {
      hash.update(chunk);
      for (const plain of await opener.push(chunk)) write(plain);
    }
    if (sealedToken(bytesToHex(hash.digest())) !== token) throw new RangeError('it is another file');
    const { last, facts } = await opener.end();
    write(last);
    return { name: facts.name, type: facts.type };
  } catch (cause) {
    throw new RelayError('bad-gateway', 'the sealed file cannot be opened', { cause });
  }
}

/** A file as a device uploads it at its mailbox, and the token that it gets there. */
export async function sealUpload(file: UploadFile, keys: MediaKeys): Promise<{ file: UploadFile; token: string }> {
  const { name, type, bytes } = file;
  const chunks: Uint8Array[] = [];
  const plain = { name, type, size: bytes.length, chunks: () => [bytes] };
  const token = await sealInto((chunk) => chunks.push(chunk), plain, keys);
  return { file: { name: SEALED_NAME, type: SEALED_TYPE, bytes: concatBytes(...chunks) }, token };
}

/** A file of the mailbox, opened. @throws RelayError, see `openInto`. */
export async function openUpload(bytes: Uint8Array, token: string, keys: MediaKeys): Promise<UploadFile> {
  const plain: Uint8Array[] = [];
  const facts = await openInto((chunk) => plain.push(chunk), [bytes], { token, keys, maxSize: bytes.length });
  return { ...facts, bytes: concatBytes(...plain) };
}
