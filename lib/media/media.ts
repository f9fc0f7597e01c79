import type { MediaEntry, Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { mirrorBacklog, RelayError } from '../errors.ts';
import type { NewBytes, OpenBytes } from '../host/media.ts';
import type { Clock } from '../kit/clock.ts';
import { batched } from '../kit/entries.ts';
import { MiB } from '../kit/units.ts';
import type { Log } from '../log.ts';
import { typeOf } from './content-types.ts';
import type { Folder, FolderEntry } from './folders.ts';
import { openMediaIndex } from './media-index.ts';
import { plainSuffix } from './names.ts';
import { SEALED_TYPE, sealedToken } from './sealed.ts';
import { createUploads, type UploadBody } from './uploads.ts';

/** Bytes of all files that the relay owns. */
export const OWNED_CAP = 2048 * MiB;
const UPLOADS_PER_SESSION = 4;

export type MediaChange = 'added' | 'sensitive';

/** Body of `POST /media/register`, its types checked. */
export interface Registration {
  path: unknown;
  contentType: string;
  fileName: string | null;
  sensitive: boolean;
  owned: boolean;
}

/** Something to serve. The receiver closes `bytes` or passes on its body. */
export interface ServedMedia {
  bytes: OpenBytes;
  contentType: string;
  fileName: string | null;
  sensitive: boolean;
}

/** An upload that a device has made: what the other side of a mirror has to know besides its entry. */
export interface Received {
  family: string;
  /** Hex. */
  sha256: string;
}

/** The part of a mirror in this relay's media (contract 12 §2): see `lib/mirror/uploads.ts` and `lib/mirror/pulls.ts`. */
export interface UploadCustody {
  /** True while uploads are given to the other side. */
  isGiving(): boolean;
  /** @throws RelayError `unavailable` when one more upload of this size must not be taken. */
  admit(family: string, size: number): void;
  /** Takes note of an upload, in the turn in which its entry is stored; false when it cannot be given. */
  received(entry: MediaEntry, upload: Received): boolean;
  /** An upload of which note was taken could not be stored. */
  dropped(token: string): void;
  /** True while an entry waits to be given. */
  isHeld(token: string): boolean;
  /** The error for a token that is unknown here, but may be known later or elsewhere; undefined for others. */
  elsewhere(token: string): RelayError | undefined;
}

/** The mirror's access to media. */
export interface SharedUploads {
  join(custody: UploadCustody): void;
  /** The bytes of an entry; null when they are gone. */
  bytes(token: string): Promise<OpenBytes | null>;
  /** Removes an entry with its bytes: the other side has it. */
  release(token: string): Promise<void>;
  /** Begins a file that outlives the process; durable once it is finished. Throws with an errno. */
  create(): Promise<NewBytes>;
  /** Adds an entry whose bytes are such a file, under its token; false when that is taken or has expired. */
  adopt(entry: MediaEntry): boolean;
  /** Places of all such files. Rejects when the disk does not tell. */
  places(): Promise<string[]>;
  remove(place: string): Promise<void>;
}

/** The media of a relay (contract 04 §2 to §4). */
export interface Media {
  /**
   * Adds a file of this host.
   * @throws RelayError `invalid` for whatever is wrong with it; `unavailable` when the disk does not tell; `unsupported`
   * without a host.
   */
  register(registration: Registration): Promise<MediaEntry>;
  /** Receives a file from a device. @throws RelayError, see `Uploads.receive`. */
  upload(body: UploadBody): Promise<MediaEntry>;
  /** Marks an entry sensitive for good; resolves when that is stored, with false if there is no such entry. */
  markSensitive(token: string): Promise<boolean>;
  /** Opens an entry. @throws RelayError `not-found`, or `unavailable` when the disk does not tell. */
  open(token: string): Promise<ServedMedia>;
  /**
   * Opens a file of this host by its path, or by its path in the agent's container. The hint is a media type or null.
   * @throws RelayError `forbidden`, `not-found`; `unavailable` when the disk does not tell; `unsupported` without a host.
   */
  openPath(path: string, hint: string | null): Promise<Omit<ServedMedia, 'sensitive'>>;
  /**
   * A folder of those that media settings allow, or without a path these. `recent` are the newest files of the agent.
   * @throws RelayError as `openPath`.
   */
  folder(path: string | null): Promise<Folder | { path: null; entries: FolderEntry[] }>;
  recent(): Promise<FolderEntry[]>;
  /** Entries, newest first. */
  list(includeExpired: boolean): (MediaEntry & { isExpired: boolean })[];
  /** Number of live entries. */
  count(): number;
  readonly shared: SharedUploads;
  /** Starts the periodic work of a process that stays. */
  start(): void;
  /** Removes what has expired. */
  sweep(): Promise<void>;
  /** Aborts uploads; on a host also removes every entry, with the files that the relay owns. */
  stop(): Promise<void>;
}

/** Where bytes are kept: files of a host, or objects of a bucket. A place is a path or a key. */
export interface MediaBytes {
  /** Uploads of all sessions that may run at once. */
  readonly maxUploads: number;
  /** An unused place for an upload whose file name ends in `suffix`. */
  newPlace(suffix: string): string;
  create(place: string): Promise<NewBytes>;
  /** The place to serve a finished upload from, or null when it cannot be served. */
  accept(place: string): Promise<string | null>;
  /** Opens the bytes of an entry; null when they are gone or may not be served. */
  open(place: string): Promise<OpenBytes | null>;
  /** Removes bytes. Missing ones count as removed. */
  remove(place: string): Promise<void>;
  /** Files that outlive the process; on a host only. */
  kept?: { create(): Promise<NewBytes>; places(): Promise<string[]> };
}

export interface SharedMediaParts {
  bytes: MediaBytes;
  store: Store<'media'>;
  config: Config;
  clock: Clock;
  log: Log;
  changed?(change: MediaChange): void;
}

/**
 * Tokens in a marker path have this form (contract 04 §3.4); tokens that the relay issues have 22 characters, those of sealed
 * uploads 43.
 */
export const isToken = (text: string): boolean => /^[A-Za-z0-9_-]{16,128}$/.test(text);

const isStopping = () => new RelayError('unavailable', 'the relay is stopping');

/** The part of `Media` that is the same wherever the bytes are kept, and its index. */
export async function openSharedMedia({ bytes, store, config, clock, log, changed }: SharedMediaParts) {
  let custody: UploadCustody | undefined;
  const index = await openMediaIndex({
    store,
    clock,
    log,
    ttl: config.mediaTtlSeconds,
    cap: config.mediaLruCap,
    ownedCap: OWNED_CAP,
    isHeld: (token) => custody?.isHeld(token) === true,
    remove: bytes.remove,
  });
  const uploads = createUploads({
    clock,
    cap: config.mediaMaxSizeMb * MiB,
    perOwner: UPLOADS_PER_SESSION,
    total: bytes.maxUploads,
    isHashed: () => custody?.isGiving() === true,
    async create({ fileName }) {
      const place = bytes.newPlace(plainSuffix(fileName));
      await index.begin(place);
      const file = await bytes.create(place).catch((error) => {
        index.end(place);
        throw error;
      });
      return {
        ...file,
        async discard() {
          await file.discard();
          index.end(place);
        },
      };
    },
  });
  let stopped = false;

  /**
   * Adds an entry. @throws RelayError `unavailable` when the relay stops or the other side cannot be given it, `internal`
   * when it cannot be stored.
   */
  async function add(fresh: Parameters<typeof index.add>[0], upload?: Received): Promise<MediaEntry> {
    if (stopped) throw isStopping();
    const { entry, saved } = index.add(fresh);
    if (upload && custody?.received(entry, upload) === false) {
      index.remove(entry);
      throw mirrorBacklog();
    }
    try {
      await saved;
    } catch (cause) {
      index.remove(entry);
      custody?.dropped(entry.token);
      if (stopped) throw isStopping();
      throw new RelayError('internal', 'the media entry could not be stored', { cause });
    }
    changed?.('added');
    log.info(`added media: ${entry.size} bytes, ${entry.contentType}, sensitive ${entry.sensitive}`);
    return entry;
  }

  /** Others may have been received meanwhile. */
  function refusalOf(family: string, size: number): unknown {
    try {
      custody?.admit(family, size);
    } catch (error) {
      return error;
    }
  }

  const shared: SharedUploads = {
    join: (joined) => {
      custody = joined;
    },
    async bytes(token) {
      const entry = index.find(token);
      return entry ? bytes.open(entry.place) : null;
    },
    release: index.release,
    async create() {
      if (bytes.kept) return bytes.kept.create();
      throw new RelayError('unsupported', 'this relay runs without a host');
    },
    adopt: index.adopt,
    places: async () => (await bytes.kept?.places()) ?? [],
    remove: bytes.remove,
  };

  return {
    index,
    add,
    shared,

    async upload(body: UploadBody): Promise<MediaEntry> {
      const { owner: family } = body;
      custody?.admit(family, body.contentLength ?? 0);
      const { place: received, fileName, contentType, size, sha256 } = await uploads.receive(body);
      const place = await bytes.accept(received).catch(() => null);
      const refused = place === null || stopped ? undefined : refusalOf(family, size);
      const token = contentType === SEALED_TYPE && sha256 !== undefined ? sealedToken(sha256) : undefined;
      const same = token === undefined ? undefined : index.find(token);
      if (place === null || stopped || refused || same) {
        await bytes.remove(received).catch(() => {});
        index.end(received);
        if (refused) throw refused;
        if (same) return same;
        throw stopped ? isStopping() : new RelayError('internal', 'the upload could not be stored');
      }
      const fresh = { place, contentType, fileName, size, sensitive: false, owned: true, ...(token && { token }) };
      // The bytes have an entry or are an orphan, never neither.
      return batched(store, () => {
        const added = add(fresh, sha256 === undefined ? undefined : { family, sha256 });
        index.end(received);
        return added;
      });
    },

    async open(token: string): Promise<ServedMedia> {
      const entry = index.find(token);
      const found = entry && (await bytes.open(entry.place));
      if (!entry || !found) {
        const elsewhere = entry ? undefined : custody?.elsewhere(token);
        throw elsewhere ?? new RelayError('not-found', 'there is no such media, or it has expired');
      }
      index.touch(entry);
      const contentType = await typeOf(found, entry.contentType);
      return { bytes: found, contentType, fileName: entry.fileName, sensitive: entry.sensitive };
    },

    async markSensitive(token: string): Promise<boolean> {
      const found = await index.markSensitive(token);
      if (found) changed?.('sensitive');
      return found;
    },
    list: index.list,
    count: index.count,
    sweep: index.sweep,

    /** Aborts uploads and refuses new entries. */
    async stop(): Promise<void> {
      stopped = true;
      await uploads.stop();
    },
  };
}
