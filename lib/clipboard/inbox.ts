import { RelayError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { fromBase64, randomString } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { imageFormat, isImage } from '../kit/image-formats.ts';
import { createAdmission } from '../kit/semaphore.ts';
import type { Log } from '../log.ts';

const MAX_IMAGE = 25 * 1024 * 1024;
const MAX_HINT = 40;
/** Milliseconds. */
const STALE_AFTER = 300_000;
/** Images in the inbox; the agent takes the newest. */
const MAX_WAITING = 20;
const MODE = 0o600;
/** Images being received: decoding one takes up to four times its size. */
const MAX_PER_DEVICE = 2;
const MAX_RECEIVING = 4;
const RETRY_AFTER = 2;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** An image from a device. */
export interface ClipboardImage {
  format: string;
  bytesBase64: string;
  filenameHint?: string;
}

export interface InboxEntry {
  /** Absolute path on the host. */
  path: string;
  sizeBytes: number;
  /** Number of files removed because of their age. */
  sweptStale: number;
}

/** The clipboard inbox, through which a phone passes images to the agent (contract 04 §6). */
export function createClipboardInbox({ host, clock, log }: { host: Host; clock: Clock; log: Log }) {
  const { files, processes } = host;
  const inbox = `${host.agentHome}/images/inbox`;
  const admit = createAdmission({
    perOwner: MAX_PER_DEVICE,
    total: MAX_RECEIVING,
    message: 'too many images at a time',
    retryAfter: RETRY_AFTER,
  });

  /** An unused path. */
  async function freePath(extension: string, hint: string): Promise<string> {
    for (;;) {
      const parts = ['clip', stamp(new Date(clock.now())), processes.own, hint, randomString(ALPHABET, 6)];
      const path = `${inbox}/${parts.filter((part) => part !== '').join('_')}.${extension}`;
      if ((await files.stat(path)) === null) return path;
    }
  }

  async function save(extension: string, hint: string, bytes: Uint8Array): Promise<string> {
    try {
      const path = await freePath(extension, hint);
      await files.writeAtomic(path, bytes, MODE);
      return path;
    } catch (cause) {
      // Only the cause contains the path.
      throw new RelayError('internal', 'the image could not be saved', { cause });
    }
  }

  /** Removes stale files, and the oldest beyond the limit. A file that cannot be removed is left for the next sweep. */
  async function sweep(newest: string): Promise<number> {
    let swept = 0;
    const fresh: { path: string; modified: number }[] = [];
    for (const entry of (await files.list(inbox).catch(() => null)) ?? []) {
      const path = `${inbox}/${entry.name}`;
      if (entry.kind !== 'file' || path === newest) continue;
      const modified = (await files.stat(path).catch(() => null))?.modified;
      if (modified === undefined) continue;
      if (clock.now() - modified > STALE_AFTER) swept += await remove(path);
      // Another process may still be writing it.
      else if (!entry.name.endsWith('.tmp')) fresh.push({ path, modified });
    }
    fresh.sort((a, b) => b.modified - a.modified);
    for (const { path } of fresh.slice(MAX_WAITING - 1)) await remove(path);
    return swept;
  }

  /** Number of files removed: 0 if the agent has just taken it. */
  const remove = (path: string): Promise<number> =>
    files.remove(path).then(
      () => 1,
      () => 0,
    );

  /**
   * Puts an image into the inbox, where the agent takes the newest file younger than 300 s. Removes older files, and the
   * oldest beyond 20.
   * @throws RelayError `invalid` for an unknown format, invalid base64, an empty image, or bytes of another format;
   * `too-large` above 25 MiB; `internal` when it cannot be saved.
   */
  async function put({ format, bytesBase64, filenameHint = '' }: ClipboardImage): Promise<InboxEntry> {
    const kind = imageFormat(format);
    if (!kind) throw new RelayError('invalid', 'format must be one of png, jpg, jpeg, webp and gif');
    const bytes = fromBase64(bytesBase64);
    if (!bytes) throw new RelayError('invalid', 'bytes_base64 is not valid base64');
    if (bytes.byteLength === 0) throw new RelayError('invalid', 'the image is empty');
    if (bytes.byteLength > MAX_IMAGE) throw new RelayError('too-large', 'the image is larger than 25 MiB');
    if (!isImage(kind, bytes)) throw new RelayError('invalid', `the bytes are not a ${kind} image`);
    const hint = filenameHint.replace(/[^A-Za-z0-9_-]/g, '').slice(0, MAX_HINT);
    const path = await save(kind, hint, bytes);
    log.info(`staged ${path.slice(inbox.length + 1)} of ${bytes.byteLength} bytes`);
    return { path, sizeBytes: bytes.byteLength, sweptStale: await sweep(path) };
  }

  return {
    put,
    /**
     * Reads an image and puts it into the inbox, unless too many are being received.
     * @throws RelayError `rate-limited` before anything is read, and any error of `read` and `put`.
     */
    receive: (device: string, read: () => Promise<ClipboardImage>): Promise<InboxEntry> =>
      admit(device, async () => put(await read())),
  };
}

const two = (value: number): string => String(value).padStart(2, '0');

/** `YYYYMMDD_HHMMSS`, in the time zone of the host. */
const stamp = (date: Date): string =>
  `${date.getFullYear()}${two(date.getMonth() + 1)}${two(date.getDate())}_` +
  `${two(date.getHours())}${two(date.getMinutes())}${two(date.getSeconds())}`;
