import type { MediaEntry, Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { mirrorBacklog, RelayError } from '../errors.ts';
import type { NewBytes, OpenBytes } from '../host/media.ts';
import { base64url, hexToBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { batched } from '../kit/entries.ts';
import { createEvent } from '../kit/event.ts';
import { sha256 } from '../kit/sha256.ts';
import { MiB } from '../kit/units.ts';
import type { Log } from '../log.ts';
import { typeOf } from './content-types.ts';
import type { Folder, FolderEntry } from './folders.ts';
import { openMediaIndex } from './media-index.ts';
import { plainSuffix } from './names.ts';
import { sealedToken } from './sealed.ts';
import { SEALED_TYPE } from './sealed-type.ts';
import { createUploads, type UploadBody, type Uploaded } from './uploads.ts';

/** Maximum bytes of all files that the relay owns. */
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

/** Media to serve. The receiver closes `bytes` or passes on its body. */
export interface ServedMedia {
  bytes: OpenBytes;
  contentType: string;
  fileName: string | null;
  sensitive: boolean;
}

/** An upload from a device, with what the other side of a mirror needs besides its entry. */
export interface Received {
  family: string;
  /** Hex. */
  sha256: string;
}

/** The mirror's part in this relay's media (contract 12 §2): see `lib/mirror/uploads.ts` and `lib/mirror/pulls.ts`. */
export interface UploadCustody {
  /** True while uploads are transferred to the other side. */
  isGiving(): boolean;
  /** @throws RelayError `unavailable` if another upload of this size must be refused. */
  admit(family: string, size: number): void;
  /** Records an upload, in the turn in which its entry is stored; false if it cannot be transferred. */
  received(entry: MediaEntry, upload: Received): boolean;
  /** A recorded upload could not be stored. */
  dropped(token: string): void;
  /** True while an entry waits for its transfer. */
  isHeld(token: string): boolean;
  /** The error for a token that is unknown here but may be known later or elsewhere; undefined for others. */
  elsewhere(token: string): RelayError | undefined;
}

/** The media of a relay (contract 04 §2 to §4). */
export interface Media extends Omit<Awaited<ReturnType<typeof openSharedMedia>>, 'index' | 'add'> {
  /**
   * Adds a file of this host.
   * @throws RelayError `invalid` for any problem with it; `unavailable` if the disk cannot be read; `unsupported` without a
   * host.
   */
  register(registration: Registration): Promise<MediaEntry>;
  /**
   * Opens a file of this host by its path, or by its path in the agent's container. The hint is a media type or null.
   * @throws RelayError `forbidden`, `not-found`; `unavailable` if the disk cannot be read; `unsupported` without a host.
   */
  openPath(path: string, hint: string | null): Promise<Omit<ServedMedia, 'sensitive'>>;
  /**
   * An allowed folder, or without a path, all of them. `recent` are the newest files of the agent.
   * @throws RelayError like `openPath`.
   */
  folder(path: string | null): Promise<Folder | { path: null; entries: FolderEntry[] }>;
  recent(): Promise<FolderEntry[]>;
  /** Starts the periodic work of a process that keeps running. */
  start(): void;
}

/** Storage of bytes: files of a host, or objects of a bucket. A place is a path or a key. */
export interface MediaBytes {
  /** Maximum concurrent uploads of all sessions. */
  readonly maxUploads: number;
  /** An unused place for an upload whose file name ends in `suffix`. */
  newPlace(suffix: string): string;
  create(place: string): Promise<NewBytes>;
  /** The place to serve a finished upload from, or null if it cannot be served. */
  accept(place: string): Promise<string | null>;
  /** Opens the bytes of an entry; null if they are gone or may not be served. */
  open(place: string): Promise<OpenBytes | null>;
  /** Removes bytes. Missing ones count as removed. */
  remove(place: string): Promise<void>;
  /** Files that outlive the process; on a host only. */
  durable?: { create(): Promise<NewBytes>; locations(): Promise<string[]> };
}

export interface SharedMediaDeps {
  bytes: MediaBytes;
  store: Store<'media'>;
  config: Config;
  clock: Clock;
  log: Log;
}

/**
 * Tokens in a marker path have this form (contract 04 §3.4); tokens that the relay issues have 22 characters, those of sealed
 * uploads 43.
 */
export const isToken = (text: string): boolean => /^[A-Za-z0-9_-]{16,128}$/.test(text);

const isStopping = () => new RelayError('unavailable', 'the relay is stopping');

const TOKEN_BYTES = 16;

/**
 * The token of an upload that may be sent again: that of a sealed one is its hash, and one with a key has the same token at
 * home and at the edge. Under the same key, other contents are another upload.
 */
function knownToken({ owner, key }: UploadBody, uploaded: Uploaded): string | undefined {
  const { contentType, fileName, sha256: hash } = uploaded;
  if (hash === undefined) return undefined;
  if (contentType === SEALED_TYPE) return sealedToken(hash);
  if (key === undefined) return undefined;
  const named = JSON.stringify(['svc-relay upload v1', owner, key, fileName, contentType, hash]);
  return base64url(hexToBytes(sha256(named)).subarray(0, TOKEN_BYTES));
}

/** The part of `Media` that is independent of the storage of bytes, and its index. */
export async function openSharedMedia({ bytes, store, config, clock, log }: SharedMediaDeps) {
  const changes = createEvent<[change: MediaChange]>();
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
  /** Entries of uploads with a known token that are being stored. */
  const storing = new Map<string, Promise<MediaEntry>>();
  let stopped = false;

  /**
   * Adds an entry. @throws RelayError `unavailable` if the relay stops or the entry cannot be transferred to the other side,
   * `internal` if it cannot be stored.
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
    changes.emit('added');
    log.info(`added media: ${entry.size} bytes, ${entry.contentType}, sensitive ${entry.sensitive}`);
    return entry;
  }

  /** Other uploads may have been received meanwhile. */
  function refusalOf(family: string, size: number): unknown {
    try {
      custody?.admit(family, size);
    } catch (error) {
      return error;
    }
  }

  /** The mirror's access to media. */
  const shared = {
    join(joined: UploadCustody): void {
      custody = joined;
    },
    /** The bytes of an entry; null if they are gone. */
    async bytes(token: string): Promise<OpenBytes | null> {
      const entry = index.find(token);
      return entry ? bytes.open(entry.place) : null;
    },
    /** Removes an entry and its bytes after the other side has received it. */
    release: index.release,
    /** Creates a file that outlives the process; durable once it is finished. Throws with an errno. */
    async create(): Promise<NewBytes> {
      if (bytes.durable) return bytes.durable.create();
      throw new RelayError('unsupported', 'this relay runs without a host');
    },
    /**
     * Adds an entry for such a file under its token, in place of the same upload where that would end with the process; false
     * if the token is taken or has expired.
     */
    adopt: index.adopt,
    has: (token: string): boolean => index.find(token) !== undefined,
    /** Places of all such files. Rejects if the disk cannot be read. */
    locations: async (): Promise<string[]> => (await bytes.durable?.locations()) ?? [],
    remove: bytes.remove,
  };

  return {
    index,
    add,
    shared,

    /** Receives a file from a device. @throws RelayError, see `Uploads.receive`. */
    async upload(body: UploadBody): Promise<MediaEntry> {
      const { owner: family } = body;
      custody?.admit(family, body.contentLength ?? 0);
      const uploaded = await uploads.receive(body);
      const { place: received, fileName, contentType, size, sha256 } = uploaded;
      const place = await bytes.accept(received).catch(() => null);
      const refused = place === null || stopped ? undefined : refusalOf(family, size);
      const token = knownToken(body, uploaded);
      const known = token === undefined ? undefined : index.find(token);
      // Sealed uploads of earlier versions have no hash beside their token.
      const isSame = token !== undefined && known !== undefined && (known.sha256 ?? sha256) === sha256;
      const same = isSame ? (storing.get(token) ?? known) : undefined;
      if (place === null || stopped || refused || same) {
        await bytes.remove(received).catch(() => {});
        index.end(received);
        if (refused) throw refused;
        if (same) return same;
        throw stopped ? isStopping() : new RelayError('internal', 'the upload could not be stored');
      }
      const named = token === undefined || known ? {} : { token, sha256 };
      const fresh = { place, contentType, fileName, size, sensitive: false, owned: true, ...named };
      // The bytes always have an entry or are an orphan.
      return batched(store, () => {
        const added = add(fresh, sha256 === undefined ? undefined : { family, sha256 });
        index.end(received);
        if (token !== undefined) {
          storing.set(token, added);
          const stored = () => void storing.delete(token);
          added.then(stored, stored);
        }
        return added;
      });
    },

    /** Opens an entry. @throws RelayError `not-found`, or `unavailable` if the disk cannot be read. */
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

    /** Marks an entry as sensitive permanently. Resolves when that is stored, with false if the entry does not exist. */
    async markSensitive(token: string): Promise<boolean> {
      const found = await index.markSensitive(token);
      if (found) changes.emit('sensitive');
      return found;
    },
    onChange: changes.on,
    /** Entries, newest first. */
    list: index.list,
    /** Number of live entries. */
    count: index.count,
    sweep: index.sweep,

    /** Aborts uploads and refuses new entries. On a host, also removes every entry, with the files that the relay owns. */
    async stop(): Promise<void> {
      stopped = true;
      await uploads.stop();
    },
  };
}
