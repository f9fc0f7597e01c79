import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { base64, fromBase64, randomBytes } from '../../lib/kit/bytes.ts';
import { asObject, parseJson, parseObject } from '../../lib/kit/json.ts';
import { passphraseKey, SALT_BYTES } from '../../lib/kit/passphrase.ts';
import { SCHEMA_VERSION } from '../../storage/index.ts';
import type { StoredRow } from '../../storage/sql-driver.ts';
import { CommandError, printable } from '../output.ts';

// A backup is one line of JSON, the header, and then gzip of lines of JSON. Behind a passphrase, the gzip is cut into
// frames of AES-256-GCM: the nonce is the number of the frame and whether it is the last one, so that frames can neither be
// dropped nor swapped, and the header is authenticated with each of them.

const FORMAT = 1;
const MAX_HEADER = 1024;
const FRAME = 64 * 1024;
const TAG = 16;
/** Limits in characters of one line and in bytes of the whole, far above any state (storage/README.md). */
const MAX_LINE = 16 * 1024 * 1024;
const MAX_CONTENT = 1024 * 1024 * 1024;

/** The unencrypted first line of a backup, readable without the passphrase. */
export interface Header {
  format: number;
  /** Version of svc-relay that wrote it, and of the records in its stores. */
  version: string;
  schema: number;
  /** Epoch seconds. */
  createdAt: number;
  /** Null for one without a passphrase. */
  salt: Uint8Array | null;
  /** The line as it stands in the file, with its end. */
  line: Buffer;
}

/** A line of the content: first `home`, then files and rows, `end` last. */
export type Item =
  | { home: Origin }
  | { file: string; data: string }
  | { rows: StoredRow[] }
  | { end: { files: number; rows: number } };

/** Where the backup is from: paths in its settings may name these folders. */
export interface Origin {
  agent_home: string;
  home: string;
  /** False when the relay kept its state in memory. */
  has_state: boolean;
}

export const damaged = (why: string): CommandError =>
  new CommandError(`the backup is damaged: ${why}; nothing was changed`, 'Try another copy of the file.');

const wrongPassphrase = () =>
  new CommandError(
    'the passphrase is not that of this backup, or the file was changed; nothing was changed',
    'Try again with the passphrase that it was made with, or with another copy of the file.',
  );

/** The header of a new backup; with a salt when it is to be sealed. */
export function newHeader(version: string, createdAt: number, isSealed: boolean): Header {
  const salt = isSealed ? randomBytes(SALT_BYTES) : null;
  const fields = { svc_relay_backup: FORMAT, version, schema: SCHEMA_VERSION, created_at: createdAt };
  const line = Buffer.from(`${JSON.stringify({ ...fields, salt: salt && base64(salt) })}\n`);
  return { format: FORMAT, version, schema: SCHEMA_VERSION, createdAt, salt, line };
}

/**
 * Reads the header of a file.
 * @throws CommandError for another file, and for a backup of a version that this one cannot read, which it names.
 */
export async function readHeader(path: string): Promise<Header> {
  const name = printable(path);
  const bytes = Buffer.alloc(MAX_HEADER);
  const file = await open(path, 'r');
  let size: number;
  try {
    if (!(await file.stat()).isFile()) throw Object.assign(new Error('not a regular file'), { code: 'EISDIR' });
    ({ bytesRead: size } = await file.read(bytes, 0, MAX_HEADER, 0));
  } finally {
    await file.close();
  }
  const end = bytes.subarray(0, size).indexOf(10);
  const fields = end < 0 ? null : parseObject(bytes.toString('utf8', 0, end));
  const { svc_relay_backup: format, version, schema, created_at: createdAt, salt: text } = fields ?? {};
  const salt = typeof text === 'string' ? fromBase64(text) : null;
  if (typeof format !== 'number' || typeof version !== 'string' || typeof schema !== 'number') {
    throw new CommandError(
      `${name} is not a backup of a relay`,
      'Make one on the machine to be saved, with: svc backup <file>',
    );
  }
  if (format > FORMAT || schema > SCHEMA_VERSION) {
    throw new CommandError(
      `${name} was made by svc-relay ${printable(version)}, whose backups this version cannot read; nothing was changed`,
      `Install svc-relay ${printable(version)} or later here, and restore it then.`,
    );
  }
  if (typeof createdAt !== 'number' || (text !== null && salt?.length !== SALT_BYTES)) throw damaged('its first line');
  return { format, version, schema, createdAt, salt, line: bytes.subarray(0, end + 1) };
}

/** Writes header and content through `write`. The passphrase is that of a sealed backup. */
export async function writeContent(
  header: Header,
  passphrase: string | undefined,
  items: AsyncIterable<Item>,
  write: (bytes: Uint8Array) => Promise<unknown>,
): Promise<void> {
  const key = header.salt && (await passphraseKey(passphrase ?? '', header.salt, 'encrypt'));
  await write(header.line);
  await pipeline(
    async function* () {
      for await (const item of items) yield Buffer.from(`${JSON.stringify(item)}\n`);
    },
    createGzip(),
    key === null
      ? (source: AsyncIterable<Buffer>) => source
      : (source: AsyncIterable<Buffer>) => sealed(source, key, header),
    async (source: AsyncIterable<Uint8Array>) => {
      for await (const bytes of source) await write(bytes);
    },
  );
}

/**
 * Reads the content of a backup and gives each line to `take`, in order, in little memory whatever the file claims.
 * @throws CommandError for another passphrase, and for a file that is damaged, cut off or too large.
 */
export async function readContent(
  path: string,
  header: Header,
  passphrase: string | undefined,
  take: (item: Record<string, unknown>) => Promise<void> | void,
): Promise<void> {
  const key = header.salt && (await passphraseKey(passphrase ?? '', header.salt, 'decrypt'));
  const source = createReadStream(path, { start: header.line.length, highWaterMark: FRAME });
  const packed = key === null ? source : Readable.from(opened(source, key, header));
  /** The original read error: streams that end each other hide it behind errors of their own. */
  let problem: unknown;
  packed.on('error', (error: unknown) => {
    problem ??= error;
  });
  try {
    await pipeline(packed, createGunzip(), async (unpacked: AsyncIterable<Buffer>) => {
      try {
        for await (const line of linesOf(unpacked)) {
          const item = asObject(parseJson(line));
          if (item === null) throw damaged('a line of it is not a JSON object');
          await take(item);
        }
      } catch (error) {
        problem ??= error;
        throw error;
      }
    });
  } catch (error) {
    const cause = problem ?? error;
    const { code = '' } = cause as NodeJS.ErrnoException;
    throw /^Z_|^ERR_ZLIB/.test(code) ? damaged('it is cut off, or was changed') : cause;
  } finally {
    source.destroy();
  }
}

async function* linesOf(source: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let parts: Buffer[] = [];
  let length = 0;
  let total = 0;
  for await (const chunk of source) {
    total += chunk.length;
    if (total > MAX_CONTENT) throw damaged('it holds more than any relay has');
    let from = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, from)) {
      yield Buffer.concat([...parts, chunk.subarray(from, end)]).toString('utf8');
      [parts, length, from] = [[], 0, end + 1];
    }
    parts.push(chunk.subarray(from));
    length += chunk.length - from;
    if (length > MAX_LINE) throw damaged('a line of it is too long');
  }
  if (length > 0) throw damaged('its last line is not whole');
}

function parametersOf(at: number, isLast: boolean, { line }: Header): AesGcmParams {
  const iv = Buffer.alloc(12);
  iv.writeUInt32BE(at, 7);
  iv[11] = isLast ? 1 : 0;
  return { name: 'AES-GCM', iv, additionalData: line as BufferSource };
}

async function* sealed(source: AsyncIterable<Buffer>, key: CryptoKey, header: Header): AsyncGenerator<Uint8Array> {
  let at = 0;
  for await (const [frame, isLast] of framesOf(source, FRAME)) {
    const parameters = parametersOf(at++, isLast, header);
    yield new Uint8Array(await crypto.subtle.encrypt(parameters, key, frame as BufferSource));
  }
}

async function* opened(source: AsyncIterable<Buffer>, key: CryptoKey, header: Header): AsyncGenerator<Uint8Array> {
  let at = 0;
  for await (const [frame, isLast] of framesOf(source, FRAME + TAG)) {
    const parameters = parametersOf(at, isLast, header);
    const plain = await crypto.subtle.decrypt(parameters, key, frame as BufferSource).catch(() => {
      throw at === 0 ? wrongPassphrase() : damaged('it is cut off, or was changed');
    });
    at++;
    yield new Uint8Array(plain);
  }
}

/** Cuts bytes into frames of one size. Only the last one may be shorter, or empty. */
async function* framesOf(
  source: AsyncIterable<Buffer>,
  size: number,
): AsyncGenerator<[frame: Buffer, isLast: boolean]> {
  let pending: Buffer = Buffer.alloc(0);
  for await (const chunk of source) {
    pending = Buffer.concat([pending, chunk]);
    for (; pending.length > size; pending = pending.subarray(size)) yield [pending.subarray(0, size), false];
  }
  yield [pending, true];
}
