import { RelayError } from '../errors.ts';
import { errnoOf, unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { byCodePoint, decodeUtf8Strict } from '../kit/text.ts';
import type { Log } from '../log.ts';
import type { ProfilePlace } from './home.ts';
import { MAX_SOUL } from './row.ts';

/** UTF-8 bytes of a written document. */
const MAX_DOCUMENT = 1024 * 1024;
const MAX_MEMORY = 51_200;
const MAX_ENTRIES = 500;
const MAX_RESPONSE = 4 * 1024 * 1024;
/** Largest file with an ETag, which is a digest of the whole file. */
const MAX_DIGEST = 8 * 1024 * 1024;
const FIRST = ['MEMORY.md', 'USER.md'];
const NOT_UTF8 = 'invalid utf-8';

export interface Soul {
  content: string;
  exists: boolean;
  /** Bytes on disk. */
  size: number;
  truncated: boolean;
  etag: string | null;
}

export interface MemoryEntry {
  filename: string;
  content: string;
  size: number;
  truncated: boolean;
  etag: string | null;
}

export interface Saved {
  bytes: number;
  etag: string;
}

/** Headers of a write; null without them. */
export interface Conditions {
  ifMatch: string | null;
  ifNoneMatch: string | null;
}

const etagOf = (sha256: string): string => `"${sha256}"`;

/** A profile's soul; a missing one is empty (contract 07 §1.5). */
export async function readSoul(host: Host, { name, home }: ProfilePlace): Promise<Soul> {
  const failed = (detail: string) =>
    new RelayError('internal', 'soul_read_failed', { extra: { profile: name, detail } });
  const file = await host.homeFiles
    .read(home, `${home}/SOUL.md`, { content: MAX_SOUL, digest: MAX_DIGEST })
    .catch((error: unknown) => Promise.reject(failed(errnoOf(error) || 'EIO')));
  if (file === 'missing') return { content: '', exists: false, size: 0, truncated: false, etag: null };
  if (file === 'outside') throw outside(name);
  const truncated = file.size > MAX_SOUL;
  const content = decodeUtf8Strict(file.bytes, { isCut: truncated, keepBom: true });
  if (content === null) throw failed(NOT_UTF8);
  return { content, exists: true, size: file.size, truncated, etag: file.sha256 && etagOf(file.sha256) };
}

/**
 * The `.md` files of `memories/`: at most 500, 50 KiB of each and 4 MiB of all (contract 07 §1.5). An unreadable file is
 * omitted with a warning, a link that leaves the home without one.
 */
export async function readMemory(host: Host, { name, home }: ProfilePlace, log: Log): Promise<MemoryEntry[]> {
  const directory = `${home}/memories`;
  const listed = (await unlessUnreadable(host.files.list(directory))) ?? [];
  const names = listed
    .filter(({ name, kind }) => name.endsWith('.md') && (kind === 'file' || kind === 'link'))
    .map((entry) => entry.name)
    .sort(inMemoryOrder);
  const entries: MemoryEntry[] = [];
  let room = MAX_RESPONSE;
  for (const filename of names) {
    if (entries.length === MAX_ENTRIES) {
      log.warn(`profile ${name} has more than ${MAX_ENTRIES} memory files; the others are not shown`);
      break;
    }
    const leaveOut = (reason: string) => log.warn(`memory file ${filename} of profile ${name} is left out: ${reason}`);
    try {
      const limits = { content: MAX_MEMORY, digest: MAX_DIGEST };
      const file = await host.homeFiles.read(home, `${directory}/${filename}`, limits);
      if (file === 'missing' || file === 'outside') continue;
      const { bytes, size, sha256 } = file;
      const content = decodeUtf8Strict(bytes, { isCut: size > MAX_MEMORY, keepBom: true });
      if (content === null) {
        leaveOut(NOT_UTF8);
        continue;
      }
      const fits = bytes.length <= room;
      if (fits) room -= bytes.length;
      entries.push({
        filename,
        content: fits ? content : '',
        size,
        truncated: size > MAX_MEMORY || !fits,
        etag: sha256 && etagOf(sha256),
      });
    } catch (error) {
      leaveOut(errnoOf(error) || 'EIO');
    }
  }
  return entries;
}

function inMemoryOrder(a: string, b: string): number {
  const rank = (name: string) => (FIRST.indexOf(name) + 1 || FIRST.length + 1) - 1;
  return rank(a) - rank(b) || byCodePoint(a.toLowerCase(), b.toLowerCase()) || byCodePoint(a, b);
}

/**
 * Writes `SOUL.md` or a file of `memories/` (contract 07 §1.5), if the conditions allow it. `failure` is the error if
 * that fails.
 */
export async function writeDocument(
  host: Host,
  { name, home }: ProfilePlace,
  { path, content, conditions, failure }: { path: string; content: string; conditions: Conditions; failure: string },
): Promise<Saved> {
  const bytes = utf8ToBytes(content);
  if (bytes.length > MAX_DOCUMENT) throw contentTooLarge(bytes.length);
  const written = await host.homeFiles
    .write(home, `${home}/${path}`, bytes, (present) => mayReplace(conditions, present))
    .catch((error: unknown) => {
      throw new RelayError('internal', failure, { extra: { profile: name, detail: errnoOf(error) || 'EIO' } });
    });
  if (written === 'outside') throw outside(name);
  if (written === 'refused') throw new RelayError('precondition', 'precondition_failed');
  return { bytes: bytes.length, etag: etagOf(written.sha256) };
}

const outside = (profile: string) => new RelayError('forbidden', 'path_outside_profile', { extra: { profile } });

export const contentTooLarge = (received?: number): RelayError =>
  new RelayError('too-large', 'payload_too_large', {
    extra: { limit_bytes: MAX_DOCUMENT, ...(received === undefined ? {} : { received_bytes: received }) },
  });

/** With `If-None-Match: *`, only to create a file (RFC 9110 §13.1.2). */
const mayReplace = ({ ifMatch, ifNoneMatch }: Conditions, present: { sha256: string | null } | null): boolean =>
  isMatch(ifMatch, present) && (ifNoneMatch === null || !isMatch(ifNoneMatch.replaceAll('W/', ''), present));

/**
 * True if an `If-Match` header allows replacing the present file: strong comparison, a list or `*` (RFC 9110 §13.1.1).
 */
export function isMatch(ifMatch: string | null, present: { sha256: string | null } | null): boolean {
  if (ifMatch === null) return true;
  if (present === null) return false;
  const etags = ifMatch.split(',').map((etag) => etag.trim());
  return etags.includes('*') || (present.sha256 !== null && etags.includes(etagOf(present.sha256)));
}

const FILENAME = /^(?!.*\.\.)[A-Za-z0-9_-][A-Za-z0-9._-]*\.md$/;
const MAX_FILENAME = 128;

/** Returns why a name is invalid for a memory file; null if it is valid (contract 07 §1.5). */
export function memoryFilenameFault(filename: string): string | null {
  if (filename.length > MAX_FILENAME) return `a filename has at most ${MAX_FILENAME} characters`;
  if (!FILENAME.test(filename)) {
    return 'a filename consists of A-Z a-z 0-9 . _ -, starts with no dot, has no two dots in a row and ends in .md';
  }
  return filename.toLowerCase() === 'soul.md' ? 'SOUL.md has a route of its own' : null;
}
