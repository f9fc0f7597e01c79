import { sha256 } from '@noble/hashes/sha2.js';
import type { MediaEntry, MirrorUploadRecord } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import { errnoOf } from '../host/errors.ts';
import type { NewBytes } from '../host/media.ts';
import type { Sealed } from '../kit/box.ts';
import { bytesToHex, fromBase64 } from '../kit/bytes.ts';
import { type Cancel, seconds } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import { backoff, type Pace } from '../kit/reconnect.ts';
import type { Media } from '../media/media.ts';
import { createFileOpener, isSealedToken, maxSealedSize, type SealedFacts } from '../media/sealed.ts';
import type { Op } from './frames.ts';
import type { RecordDeps } from './records.ts';
import type { Requests } from './requests.ts';
import type { Side } from './side.ts';
import { PIECE, READ_UPLOAD, readUpload, sumOf, UploadRecord, type WaitingUploads } from './uploads.ts';

/** Milliseconds for a piece. */
const PIECE_TIMEOUT = 60_000;
/** Waits before an upload is retried: 1, 2, 4 s, ... 10 min. */
const PACE: Pace = { max: 600_000, jitter: (wait) => wait / 4 };
/** Maximum uploads that home has yet to fetch; the edge has fewer. From as many records on, those of no use are dropped. */
const MAX_RECORDS = 2_000;
/** Maximum refused uploads that home remembers. */
const MAX_REFUSED = 100;
const MAX_REASON = 200;
const UPLOAD = 'upload:';
const DONE = 'uploaded:';

export interface PullsDeps extends RecordDeps, Pick<Side, 'outbox' | 'isLinked'> {
  media: Pick<Media, 'shared'>;
  requests: Requests;
  /** Opens the head of an upload that a device has sealed. Rejects if it cannot be opened. */
  openHead(head: Sealed): Promise<Uint8Array>;
  /** Bytes of the largest upload that this relay accepts. */
  maxSize: number;
  /** An upload has come home. */
  took(): void;
  /** Between 0 and 1. */
  random(): number;
}

/** Uploads that wait at the edge, as known to home, and why the last attempt to fetch one failed. */
export interface PullStatus extends WaitingUploads {
  error?: string;
  /** Why the last refused sealed upload cannot be opened, until it would have expired. */
  refused?: string;
}

/** The link ended in the middle of an upload. */
class Cut extends Error {}
/** The edge no longer has an upload. */
class Gone extends Error {}
/** The edge cannot send the bytes now. The part that is here stays. */
class Later extends Error {}
/** The bytes differ from those that the device sent. */
class Damaged extends Error {}
/** The bytes are those that were sent, but home cannot open them, so that retries are useless. */
class Refused extends Error {}

type FetcherDeps = Pick<PullsDeps, 'media' | 'requests' | 'openHead' | 'maxSize' | 'isLinked'>;

/** A complete upload. */
type Fetched = { place: string } & Pick<MirrorUploadRecord, 'opened'>;

interface Part {
  token: string;
  sha256: string;
  file: NewBytes;
  hash: ReturnType<typeof sha256.create>;
  got: number;
  /** For a sealed upload, of which the file contains only the plain bytes. */
  opener?: ReturnType<typeof createFileOpener>;
  /** Why it cannot be opened. The rest is only hashed, since its bytes may be damaged at the edge. */
  refusal?: unknown;
}

const entryOf = ({ opened, ...record }: MirrorUploadRecord & { place: string }): MediaEntry => ({
  token: record.token,
  place: record.place,
  contentType: opened?.content_type ?? record.content_type,
  fileName: opened?.file_name ?? record.file_name,
  size: opened?.size ?? record.size,
  createdAt: record.created_at,
  expiresAt: record.expires_at,
  lastAccessed: record.created_at,
  sensitive: false,
  owned: true,
  sha256: record.sha256,
  kept: true,
});

const hasPlace = (record: MirrorUploadRecord): record is MirrorUploadRecord & { place: string } =>
  record.place !== undefined;
/** True if the edge need not keep its copy. */
const isSettled = (record: MirrorUploadRecord): boolean => hasPlace(record) || record.refused !== undefined;

/** True for an upload that home no longer has, since newer media took its room. */
const isEvicted = (record: MirrorUploadRecord, { has }: Pick<Media['shared'], 'has'>): boolean =>
  hasPlace(record) && record.told === true && !has(record.token);

/** Refused uploads, oldest first. */
const refusedOf = (records: ReadonlyMap<string, MirrorUploadRecord>): MirrorUploadRecord[] =>
  [...records.values()]
    .filter((record) => record.refused !== undefined)
    .sort((one, other) => one.created_at - other.created_at);

/** Fetches one upload at a time, in pieces, into a file that outlives the process. */
function createFetcher({ media: { shared }, requests, openHead, maxSize, isLinked }: FetcherDeps) {
  let part: Part | undefined;

  /** Requests a piece from the edge. */
  async function ask(token: string, offset: number, length: number): Promise<Uint8Array> {
    if (!isLinked()) throw new Cut('the link has ended');
    const piece = { token, offset, length };
    const { data } = await requests.ask(READ_UPLOAD, piece, PIECE_TIMEOUT).catch((error: Error) => {
      if (!isLinked()) throw new Cut('the link has ended');
      if (error.message === 'gone') throw new Gone('the edge has the upload no more');
      throw new Later('the edge cannot give its bytes now');
    });
    const bytes = typeof data === 'string' ? fromBase64(data) : null;
    if (!bytes || bytes.length === 0 || bytes.length > length) throw new Error('the edge gave no bytes');
    return bytes;
  }

  async function discardPart(): Promise<void> {
    const own = part;
    part = undefined;
    await own?.file.discard();
  }

  async function begin({ token, sha256: digest }: MirrorUploadRecord): Promise<Part> {
    const opener = isSealedToken(token) ? createFileOpener(openHead, maxSize) : undefined;
    return { token, sha256: digest, file: await shared.create(), hash: sha256.create(), got: 0, opener };
  }

  /** Writes the bytes, opened if the upload is sealed. */
  async function write(own: Part, bytes: Uint8Array): Promise<void> {
    if (!own.opener) return own.file.write(bytes);
    if (own.refusal !== undefined) return;
    const plain = await own.opener.push(bytes).catch((error) => {
      own.refusal = error;
      return [];
    });
    for (const some of plain) await own.file.write(some);
  }

  /** The facts of a complete sealed upload. @throws Refused if it cannot be opened. */
  async function finish({ opener, file, refusal }: Part): Promise<SealedFacts | undefined> {
    const unopened = (error: unknown) => {
      throw new Refused(describeError(error));
    };
    if (refusal !== undefined) unopened(refusal);
    const end = await opener?.end().catch(unopened);
    if (end) await file.write(end.last);
    return end?.facts;
  }

  /** Fetches the whole upload, durably. @throws Cut, after which the next call for the same upload continues. */
  async function fetch(record: MirrorUploadRecord): Promise<Fetched> {
    const { token, size } = record;
    if (size > (isSealedToken(token) ? maxSealedSize(maxSize) : maxSize)) {
      throw new Error('it is larger than this relay takes');
    }
    if (part?.token !== token || part.sha256 !== record.sha256) await discardPart();
    const own = part ?? (await begin(record));
    part = own;
    while (own.got < size) {
      const bytes = await ask(token, own.got, Math.min(PIECE, size - own.got));
      own.hash.update(bytes);
      await write(own, bytes);
      own.got += bytes.length;
    }
    if (bytesToHex(own.hash.digest()) !== record.sha256) throw new Damaged('its bytes are not those of its SHA-256');
    const facts = await finish(own);
    const place = await own.file.finish();
    part = undefined;
    return { place, ...(facts && { opened: { file_name: facts.name, content_type: facts.type, size: facts.size } }) };
  }

  return {
    fetch,
    discard: discardPart,
    /** Token of the partial upload that is here. */
    token: (): string | undefined => part?.token,
  };
}

/**
 * Home's side of uploads (contract 12 §2): fetches uploads made at the edge, one after another in pieces, under the same
 * tokens. The edge is told that home has an upload once its file, and then its record, are durable. An upload interrupted by
 * a lost link is continued; one left by a killed process starts again.
 */
export async function openPulls(deps: PullsDeps) {
  const { store, media, outbox, clock, log, isLinked, took, random } = deps;
  const { shared } = media;
  const fetcher = createFetcher(deps);
  const records = deps.records.below<MirrorUploadRecord>(UPLOAD, UploadRecord);
  /** Uploads whose fetch failed, by token; `at` is in monotonic milliseconds. */
  const failed = new Map<string, { failures: number; at: number; error: string }>();
  let isWorking = false;
  let cancelRetry: Cancel = () => {};

  const warnUnstored = () => log.warn('what is known of an upload at the edge could not be stored');
  const put = (record: MirrorUploadRecord) => store.setItem(UPLOAD + record.token, { ...record });

  function drop(token: string): void {
    records.delete(token);
    failed.delete(token);
    void store.removeItem(UPLOAD + token).catch(warnUnstored);
  }

  function prune(): void {
    for (const { token, expires_at: end } of [...records.values()]) if (end <= seconds(clock)) drop(token);
  }

  await load();

  /** Registers the uploads that earlier processes have fetched, and removes unfinished ones. */
  async function load(): Promise<void> {
    prune();
    const locations = await shared.locations().catch((error) => {
      log.warn(`uploads that came from the edge cannot be listed: ${errnoOf(error) || 'failed'}`);
      return undefined;
    });
    const left = new Set(locations);
    for (const record of [...records.values()].filter(hasPlace)) {
      if (left.delete(record.place) || !locations) shared.adopt(entryOf(record));
      else if (record.told) drop(record.token);
      else {
        const { place: _, opened: __, ...again } = record;
        records.set(record.token, again);
        void put(again).catch(warnUnstored);
      }
    }
    for (const place of left) await shared.remove(place).catch(() => {});
  }

  const pending = (): MirrorUploadRecord[] => [...records.values()].filter((record) => !isSettled(record));

  /** Tells the edge that it may delete its copy. */
  const reportDone = (token: string): void =>
    void outbox.offer(DONE + token, 'uploaded', { token }, { isOfferedAgain: true });

  shared.join({
    isGiving: () => false,
    admit: () => {},
    received: () => true,
    dropped: () => {},
    isHeld: () => false,
    elsewhere,
  });

  function elsewhere(token: string): RelayError | undefined {
    const record = records.get(token);
    if (!record || record.expires_at <= seconds(clock)) return undefined;
    if (record.refused !== undefined) {
      return new RelayError('gone', `the sealed upload is refused: ${record.refused}; nothing of it is kept`);
    }
    if (!hasPlace(record)) {
      const error = failed.get(token)?.error;
      const why =
        error === undefined ? 'is on its way from the edge' : `could not be taken over from the edge: ${error}`;
      return new RelayError('unavailable', `the upload ${why}: try again`, { retryAfter: 2 });
    }
    return undefined;
  }

  /** As in `saveFetched`, the record becomes durable first. */
  async function refuse(record: MirrorUploadRecord, reason: string): Promise<void> {
    const { token, sha256 } = record;
    const final: MirrorUploadRecord = { ...record, refused: reason.slice(0, MAX_REASON) };
    await put(final);
    if (records.get(token)?.sha256 !== sha256) return drop(token);
    records.set(token, final);
    failed.delete(token);
    const known = refusedOf(records);
    if (known.length > MAX_REFUSED) drop(known[0]?.token as string);
    log.error(`a sealed upload from the edge is refused: ${final.refused}; nothing of it is kept`);
    reportDone(token);
  }

  /** The file is durable. First the record becomes durable too, then the edge may be told. */
  async function saveFetched(record: MirrorUploadRecord & { place: string }): Promise<void> {
    const { token, place, sha256 } = record;
    // The mirror may have ended meanwhile.
    if (records.get(token)?.sha256 !== sha256) return shared.remove(place);
    try {
      await put(record);
    } catch (cause) {
      await shared.remove(place).catch(() => {});
      throw new Error('it could not be stored', { cause });
    }
    records.set(token, record);
    failed.delete(token);
    if (shared.adopt(entryOf(record))) log.info(`took over an upload from the edge: ${record.size} bytes`);
    else await shared.remove(place).catch(() => {});
    took();
    reportDone(token);
  }

  /** An upload stays at the edge, and is retried later. */
  function fail(token: string, error: unknown): void {
    const failures = failed.get(token)?.failures ?? 0;
    const code = errnoOf(error);
    // Messages of the file system contain paths.
    const reason = code ? `the disk says ${code}` : describeError(error);
    const wait = backoff(failures, random(), PACE);
    const line = `an upload could not be taken over from the edge: ${reason}; trying again in ${Math.ceil(wait / 1000)} s`;
    if (error instanceof Damaged) log.error(line);
    else log.warn(line);
    failed.set(token, { failures: failures + 1, at: clock.monotonic() + wait, error: reason });
  }

  const isDue = ({ token }: MirrorUploadRecord): boolean => (failed.get(token)?.at ?? 0) <= clock.monotonic();

  async function work(): Promise<void> {
    if (isWorking) return;
    isWorking = true;
    try {
      prune();
      while (isLinked()) {
        const due = pending().filter(isDue);
        const next = due.find(({ token }) => token === fetcher.token()) ?? due[0];
        if (!next) break;
        await take(next);
      }
    } finally {
      isWorking = false;
    }
    scheduleRetry();
  }

  async function take(record: MirrorUploadRecord): Promise<void> {
    try {
      await saveFetched({ ...record, ...(await fetcher.fetch(record)) });
    } catch (error) {
      if (error instanceof Cut) return;
      if (!(error instanceof Later)) await fetcher.discard();
      if (!records.has(record.token)) return;
      if (error instanceof Gone) {
        log.warn('an upload that waited at the edge is no longer there');
        drop(record.token);
        reportDone(record.token);
      } else if (error instanceof Refused) {
        await refuse(record, error.message).catch(() => fail(record.token, new Error('it could not be stored')));
      } else fail(record.token, error);
    }
  }

  function scheduleRetry(): void {
    cancelRetry();
    const times = pending().flatMap(({ token }) => failed.get(token)?.at ?? []);
    if (!isLinked() || times.length === 0) return;
    cancelRetry = clock.after(Math.max(0, Math.min(...times) - clock.monotonic()), () => void work());
  }

  return {
    /** Applies an op of the edge in this turn; undefined if it is not about uploads. */
    apply({ kind, body }: Op): Promise<unknown> | undefined {
      if (kind !== 'upload') return undefined;
      const done = Promise.resolve();
      const offer = readUpload(body);
      if (!offer) {
        log.warn('the edge gave an upload that cannot be read');
        return done;
      }
      prune();
      const { token } = offer;
      const own = records.get(token);
      // The edge may have an earlier state, or the device has sent it again.
      const isDone = own !== undefined && (own.refused !== undefined || (hasPlace(own) && shared.has(token)));
      if (isDone) reportDone(token);
      const isPending = own !== undefined && !isSettled(own) && own.sha256 === offer.sha256;
      if (isDone || isPending || offer.expires_at <= seconds(clock)) return done;
      const isCrowded = records.size >= MAX_RECORDS;
      for (const each of isCrowded ? [...records.values()] : []) if (isEvicted(each, shared)) drop(each.token);
      if (!own && pending().length >= MAX_RECORDS) {
        log.error('too many uploads wait at the edge: no note is taken of another one');
        return done;
      }
      records.set(token, offer);
      failed.delete(token);
      return put(offer).then(
        () => void work(),
        (error) => {
          if (records.get(token) === offer) records.delete(token);
          throw error;
        },
      );
    },

    /** The edge has stored an op. */
    acknowledged(kind: string, { token }: JsonObject): void {
      const record = kind === 'uploaded' ? records.get(String(token)) : undefined;
      if (!record || !isSettled(record) || record.told) return;
      const reported: MirrorUploadRecord = { ...record, told: true };
      records.set(record.token, reported);
      void put(reported).catch(warnUnstored);
    },

    linked(): void {
      for (const { token, told: reported } of [...records.values()].filter(isSettled)) {
        if (!reported && !outbox.isWaiting(DONE + token)) reportDone(token);
      }
      void work();
    },

    unlinked(): void {
      cancelRetry();
    },

    status(): PullStatus {
      const waiting = pending();
      const error = waiting.flatMap(({ token }) => failed.get(token)?.error ?? [])[0];
      const last = refusedOf(records).at(-1)?.refused;
      const why = { ...(error !== undefined && { error }), ...(last !== undefined && { refused: last }) };
      return { ...sumOf(waiting), ...why };
    },

    /** There is no edge any more. The uploads at home stay. */
    async leave(): Promise<void> {
      for (const { token } of pending()) drop(token);
      await fetcher.discard();
    },
  };
}
