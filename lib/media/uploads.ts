import { sha256 } from '@noble/hashes/sha2.js';
import { RelayError } from '../errors.ts';
import type { NewBytes } from '../host/media.ts';
import { bytesToHex } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { createIdleTimer } from '../kit/idle-timer.ts';
import { createAdmission } from '../kit/semaphore.ts';
import { boundaryOf, createFilePartReader, type FilePart, type PartHead } from './multipart.ts';
import { maxSealedSize } from './sealed.ts';
import { SEALED_TYPE } from './sealed-type.ts';

const IDLE = 30_000;
/** Maximum bytes of a body in addition to the file. */
const SLACK = 1024 * 1024;
const RETRY_AFTER = 5;

/** An upload request. */
export interface UploadBody {
  contentType: string | null;
  contentLength: number | null;
  chunks: AsyncIterable<Uint8Array>;
  /** Limits are counted per owner. */
  owner: string;
  /** The device's name for this upload (`Idempotency-Key`), so that sending it again adds nothing. */
  key?: string;
  /** Called when the body is complete, since its device may have been revoked meanwhile. */
  isWelcome(): boolean;
}

export interface Uploaded extends FilePart {
  place: string;
  size: number;
  /** Hash of the file, hex; present if the upload has a key or `isHashed` returns true. */
  sha256?: string;
}

export interface UploadsOptions {
  clock: Clock;
  /** Largest file, bytes. */
  cap: number;
  /** Maximum concurrent uploads of one owner. */
  perOwner: number;
  /** Maximum concurrent uploads of all owners. */
  total: number;
  /** The part to accept, by default the first one named `file`, and the error for a body without it. */
  part?: { isWanted(head: PartHead): boolean; missing: string };
  /** True if the hash of a file is needed. */
  isHashed?(): boolean;
  /** Creates the file for one upload. */
  create(part: FilePart): Promise<NewBytes>;
}

export type Uploads = ReturnType<typeof createUploads>;

const tooLarge = (cap: number) => new RelayError('too-large', `the file is larger than ${cap / SLACK} MiB`);
const isStopping = () => new RelayError('unavailable', 'the relay is stopping');
const notStored = (cause: unknown) => new RelayError('internal', 'the upload could not be stored', { cause });

/** Receives uploads (contract 04 §3.5): streamed at the speed of the disk. A failed one leaves nothing behind. */
export function createUploads({ clock, cap, perOwner, total, part: wanted, isHashed, create }: UploadsOptions) {
  const admit = createAdmission({
    perOwner,
    total,
    message: 'too many uploads at a time',
    retryAfter: RETRY_AFTER,
  });
  const settling = new Set<Promise<unknown>>();
  const stopping = new AbortController();

  /**
   * The chunks of a body. `next` rejects if the body breaks off, the relay stops, or the client is silent for too long. One
   * timer serves all chunks.
   */
  function chunksOf(iterator: AsyncIterator<Uint8Array>) {
    const { signal } = stopping;
    let failure: RelayError | undefined;
    let rejectWaiting = (_error: RelayError) => {};
    const fail = (error: RelayError) => {
      failure = error;
      rejectWaiting(error);
    };
    const idle = createIdleTimer(clock, IDLE, () =>
      fail(new RelayError('timeout', 'the upload stood still for 30 seconds')),
    );
    const stop = () => fail(isStopping());
    signal.addEventListener('abort', stop);
    if (signal.aborted) stop();
    return {
      next: () =>
        new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
          if (failure) return reject(failure);
          idle.begin();
          rejectWaiting = reject;
          iterator.next().then(
            (result) => {
              idle.end();
              resolve(result);
            },
            () => reject(new RelayError('invalid', 'the upload was cut off')),
          );
        }),
      end() {
        idle.stop();
        signal.removeEventListener('abort', stop);
      },
    };
  }

  async function read(body: UploadBody, boundary: string): Promise<Uploaded> {
    const reader = createFilePartReader(boundary, wanted?.isWanted);
    const iterator = body.chunks[Symbol.asyncIterator]();
    const chunks = chunksOf(iterator);
    let part: FilePart | undefined;
    let target: NewBytes | undefined;
    const hash = body.key !== undefined || isHashed?.() ? sha256.create() : undefined;
    let [size, total] = [0, 0];
    try {
      for (let next = await chunks.next(); !next.done; next = await chunks.next()) {
        total += next.value.length;
        const pieces = reader.push(next.value);
        if (pieces.part) {
          part = pieces.part;
          target = await create(part).catch((error) => Promise.reject(notStored(error)));
        }
        for (const bytes of pieces.bytes) {
          size += bytes.length;
          if (size > (part?.contentType === SEALED_TYPE ? maxSealedSize(cap) : cap)) throw tooLarge(cap);
          hash?.update(bytes);
          await target?.write(bytes).catch((error) => Promise.reject(notStored(error)));
        }
        if (total > cap + SLACK) throw tooLarge(cap);
      }
      if (!reader.complete()) throw new RelayError('invalid', 'the multipart body is not complete');
      if (!part || !target) {
        throw new RelayError('invalid', wanted?.missing ?? 'the multipart body has no part named file');
      }
      if (!body.isWelcome()) throw new RelayError('unauthorized', 'the session or its grant ended during the upload');
      const place = await target.finish().catch((error) => Promise.reject(notStored(error)));
      return { ...part, place, size, ...(hash && { sha256: bytesToHex(hash.digest()) }) };
    } catch (error) {
      // Not awaited: it would never settle for a silent client.
      void iterator.return?.()?.catch(() => {});
      await target?.discard();
      // A stop also ends the target, which throws a different error.
      throw stopping.signal.aborted ? isStopping() : error;
    } finally {
      chunks.end();
    }
  }

  return {
    /**
     * Receives one upload.
     * @throws RelayError `invalid`, `too-large`, `rate-limited`, `timeout` after 30 s without a byte, `unauthorized` when
     * the session has ended, `internal` when it cannot be stored, `unavailable` when the relay stops.
     */
    async receive(body: UploadBody): Promise<Uploaded> {
      const boundary = boundaryOf(body.contentType);
      if (body.contentLength !== null && body.contentLength > cap + SLACK) throw tooLarge(cap);
      return admit(body.owner, async () => {
        const receiving = read(body, boundary);
        settling.add(receiving);
        return receiving.finally(() => settling.delete(receiving));
      });
    },

    /** Aborts uploads. Resolves when all of their files are removed. */
    async stop(): Promise<void> {
      stopping.abort();
      await Promise.allSettled(settling);
    },
  };
}
