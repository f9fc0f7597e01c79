import * as v from 'valibot';
import type { MediaEntry, MirrorUploadRecord } from '../../storage/schema.ts';
import { mirrorBacklog, type RelayError } from '../errors.ts';
import { base64 } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { readAs } from '../kit/entries.ts';
import type { JsonObject } from '../kit/json.ts';
import { MiB } from '../kit/units.ts';
import { isToken, type Media, OWNED_CAP } from '../media/media.ts';
import { isSealedToken, sealedToken } from '../media/sealed.ts';
import { SEALED_TYPE } from '../media/sealed-type.ts';
import type { Op } from './frames.ts';
import { count as size, time } from './records.ts';
import type { Side } from './side.ts';

/** Method of the call with which home reads a piece of an upload. */
export const READ_UPLOAD = 'upload.read';
/** Bytes of the largest piece, which in base64 is well below the largest frame. */
export const PIECE = 512 * 1024;
/** Limits for the waiting uploads of one device. */
const MAX_OF_ONE = { count: 100, bytes: 512 * MiB };
const OP = 'upload:';

const text = v.pipe(v.string(), v.maxLength(512));
const Fields = v.object({
  token: v.pipe(v.string(), v.check(isToken)),
  file_name: v.nullable(text),
  content_type: text,
  size,
  sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  created_at: time,
  expires_at: time,
  family: v.pipe(v.string(), v.maxLength(64)),
});
/** The token of a sealed upload is its hash, so that the edge cannot substitute other bytes. */
const isNamed = ({ token, content_type: type, sha256 }: v.InferOutput<typeof Fields>): boolean =>
  type === SEALED_TYPE ? token === sealedToken(sha256) : !isSealedToken(token);
const Offer = v.pipe(Fields, v.check(isNamed));
/** An upload as home stores it. */
export const UploadRecord = v.pipe(
  v.object({
    ...Fields.entries,
    place: v.optional(v.string()),
    opened: v.optional(v.object({ file_name: v.string(), content_type: v.string(), size })),
    refused: v.optional(v.string()),
    told: v.optional(v.literal(true)),
  }),
  v.check(isNamed),
);
const Piece = v.object({ token: text, offset: size, length: v.pipe(size, v.minValue(1), v.maxValue(PIECE)) });

/** The upload in an op of the edge; undefined if malformed. */
export const readUpload = readAs(Offer);

/** Uploads that wait at the edge: `uploads` of the status. */
export interface WaitingUploads {
  count: number;
  bytes: number;
}

export const sumOf = (offers: MirrorUploadRecord[]): WaitingUploads => ({
  count: offers.length,
  bytes: offers.reduce((sum, offer) => sum + offer.size, 0),
});

export interface EdgeUploadsDeps extends Pick<Side, 'outbox' | 'isOn'> {
  media: Pick<Media, 'shared'> | undefined;
  clock: Clock;
  /** Maximum waiting uploads. */
  maxCount: number;
  /** The error for a request for media that may be at home. */
  refusal(): RelayError;
}

/**
 * Uploads that devices make at the edge (contract 12 §2). Each is offered to home by an op that is stored together with its
 * entry and stays until home reports that it has the bytes, after which the edge deletes its own. Waiting uploads are never
 * evicted.
 */
export function createEdgeUploads({ media, outbox, clock, maxCount, isOn, refusal }: EdgeUploadsDeps) {
  /** Keyed by token, oldest first. */
  const waiting = new Map<string, MirrorUploadRecord>();
  for (const key of outbox.keys()) {
    const offer = key.startsWith(OP) ? readUpload(outbox.body(key)) : undefined;
    if (offer) waiting.set(offer.token, offer);
  }
  let isReading = false;

  function forget(token: string): void {
    waiting.delete(token);
    outbox.forget(OP + token);
  }

  function sweep(): void {
    for (const { token, expires_at: end } of [...waiting.values()]) if (end <= seconds(clock)) forget(token);
  }

  function admit(family: string, more: number): void {
    if (!isOn()) return;
    sweep();
    const all = [...waiting.values()];
    const own = sumOf(all.filter((offer) => offer.family === family));
    if (own.count >= MAX_OF_ONE.count || own.bytes + more > MAX_OF_ONE.bytes) {
      throw mirrorBacklog('too many uploads of this device wait for home: no more are taken');
    }
    const { count, bytes } = sumOf(all);
    if (count >= maxCount || bytes + more > OWNED_CAP) {
      throw mirrorBacklog('too many uploads wait for home: no more are taken');
    }
  }

  media?.shared.join({
    isGiving: isOn,
    admit,
    received({ token, fileName, contentType, size, createdAt, expiresAt }: MediaEntry, { family, sha256 }) {
      if (!isOn()) return true;
      const offer: MirrorUploadRecord = {
        token,
        file_name: fileName,
        content_type: contentType,
        size,
        sha256,
        created_at: createdAt,
        expires_at: expiresAt,
        family,
      };
      if (!outbox.offer(OP + token, 'upload', { ...offer }, { isOfferedAgain: true })) return false;
      waiting.set(token, offer);
      return true;
    },
    dropped: forget,
    isHeld: (token) => waiting.has(token),
    elsewhere: () => (isOn() ? refusal() : undefined),
  });

  return {
    /** Applies an op of home in this turn; undefined if it is not about uploads. */
    apply({ kind, body }: Op): Promise<unknown> | undefined {
      if (kind !== 'uploaded') return undefined;
      const token = String(body.token);
      if (!waiting.has(token)) return Promise.resolve();
      forget(token);
      return media?.shared.release(token) ?? Promise.resolve();
    },

    /**
     * The answer to a call of home for a piece: `data` in base64, or the `error` `gone`, `busy`, `invalid` or `unavailable`.
     */
    async read(body: JsonObject): Promise<{ body: JsonObject } | { error: string }> {
      const asked = readAs(Piece)(body);
      if (!asked) return { error: 'invalid' };
      if (isReading) return { error: 'busy' };
      isReading = true;
      try {
        const { token, offset, length } = asked;
        const opened = waiting.has(token) ? await media?.shared.bytes(token) : null;
        if (!opened) return { error: 'gone' };
        try {
          const end = Math.min(offset + length, opened.size);
          if (offset >= end) return { error: 'invalid' };
          const stream = (await opened.body(offset, end - 1)) as ReadableStream<Uint8Array<ArrayBuffer>>;
          return { body: { data: base64(new Uint8Array(await new Response(stream).arrayBuffer())) } };
        } finally {
          await opened.close();
        }
      } catch {
        return { error: 'unavailable' };
      } finally {
        isReading = false;
      }
    },

    status: (): WaitingUploads => sumOf([...waiting.values()]),

    /** There is no home any more, so waiting uploads belong to the edge. */
    leave(): void {
      for (const token of [...waiting.keys()]) forget(token);
    },

    /** Removes expired uploads. */
    sweep,
  };
}
