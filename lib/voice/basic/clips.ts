import { RelayError } from '../../errors.ts';
import type { Host } from '../../host/index.ts';
import type { NewBytes } from '../../host/media.ts';
import { createByteBuffer } from '../../kit/byte-buffer.ts';
import { randomString } from '../../kit/bytes.ts';
import type { Clock } from '../../kit/clock.ts';
import { createAdmission } from '../../kit/semaphore.ts';
import type { Log } from '../../log.ts';
import type { FilePart, PartHead } from '../../media/multipart.ts';
import { createUploads, type UploadBody } from '../../media/uploads.ts';
import { CLIP_TYPES } from '../clip-types.ts';
import { DIRECTORY_PREFIX } from '../command.ts';

/** Bytes of a clip (contract 05 §6). */
const MAX_CLIP = 25 * 1024 * 1024;
/** Concurrent clips, of one caller and of all. At the edge they are held in memory. */
const MAX_PER_CALLER = 8;
const MAX_ON_HOST = 64;
const MAX_IN_MEMORY = 2;
const RETRY_AFTER = 5;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** Extension by the subtype of a content type, without `x-`. */
const BY_TYPE: Readonly<Record<string, string>> = {
  wav: 'wav',
  wave: 'wav',
  webm: 'webm',
  ogg: 'ogg',
  opus: 'opus',
  mp4: 'm4a',
  m4a: 'm4a',
  mpeg: 'mp3',
  mp3: 'mp3',
  flac: 'flac',
  aac: 'aac',
};

/** Audio that a client has sent. */
export interface Clip {
  /** `audio` with the extension of its format. */
  fileName: string;
  contentType: string;
  /** Bytes. */
  size: number;
  /** Reads it from its start, any number of times. */
  read(): AsyncIterable<Uint8Array>;
  /** Its path, and a directory for the results of a program. Absent at the edge. */
  files?: { path: string; directory: string };
}

/** Extension of the format of a part, without its dot (contract 05 §6). */
export function extensionOf({ contentType, fileName }: FilePart): string {
  const subtype = /^(?:audio|video)\/(?:x-)?([a-z0-9]+)\s*(?:;|$)/i.exec(contentType)?.[1]?.toLowerCase() ?? '';
  const named = /\.([a-z0-9]+)$/i.exec(fileName)?.[1]?.toLowerCase() ?? '';
  if (Object.hasOwn(BY_TYPE, subtype)) return BY_TYPE[subtype] as string;
  return Object.hasOwn(CLIP_TYPES, named) ? named : 'wav';
}

const AUDIO_PART = {
  isWanted: ({ name, hasFileName }: PartHead) => hasFileName || name === 'file' || name === 'audio',
  missing: 'the multipart body has no audio part: no audio was sent',
};

/** A received clip until it is discarded. */
type Stored = Pick<Clip, 'read' | 'files'> & { discard(): Promise<void> };

/** Where clips are stored, and how many at a time. */
interface ClipStore {
  max: { perOwner: number; total: number };
  create(part: FilePart): Promise<NewBytes>;
  /** A completed clip, by what `finish` has returned. */
  storedAt(place: string): Stored;
  /** Removes the files of killed processes. */
  sweep(): Promise<void>;
}

/** Clips as files on a host, else in memory. */
export function createClips(host: Host | undefined, clock: Clock, log: Log) {
  const { max, create, storedAt, sweep } = host ? fileStore(host) : memoryStore();
  const uploads = createUploads({ clock, cap: MAX_CLIP, ...max, part: AUDIO_PART, create });
  const admit = createAdmission({ ...max, message: 'too many voice clips at a time', retryAfter: RETRY_AFTER });

  return {
    /**
     * Receives the audio of a multipart body and runs `work` with it. The clip is always removed.
     * @throws RelayError `invalid` for a body without audio, `too-large` above 25 MiB, and others of `Uploads`.
     */
    use<T>(body: UploadBody, work: (clip: Clip) => Promise<T>): Promise<T> {
      return admit(body.owner, async () => {
        const { place, size, ...part } = await uploads.receive(body);
        const { discard, ...stored } = storedAt(place);
        try {
          if (size === 0) throw new RelayError('invalid', 'the audio is empty');
          const extension = extensionOf(part);
          const contentType = CLIP_TYPES[extension] ?? 'audio/wav';
          return await work({ ...stored, fileName: `audio.${extension}`, contentType, size });
        } finally {
          await discard().catch(() => log.warn('a voice clip could not be removed'));
        }
      });
    },
    sweep,
    stop: uploads.stop,
  };
}

/** Clips as files, mode 0600, each in its own directory, mode 0700, whose name contains the process id. */
function fileStore({ files, media, processes }: Host): ClipStore {
  const run = randomString(ALPHABET, 8);
  const prefix = () => `${media.temporaryDirectory()}/${DIRECTORY_PREFIX}`;

  /** True for a directory of a finished run. If the id was reused, the directory is older than this process. */
  async function isLeftover(name: string): Promise<boolean> {
    const [, id, owner] = /^(\d+)-([a-z0-9]+)-/.exec(name.slice(DIRECTORY_PREFIX.length)) ?? [];
    if (id === undefined || owner === run) return false;
    if (Number(id) !== processes.own) return !processes.exists(Number(id));
    const facts = await files.stat(`${media.temporaryDirectory()}/${name}`);
    return facts !== null && facts.modified < performance.timeOrigin;
  }

  return {
    max: { perOwner: MAX_PER_CALLER, total: MAX_ON_HOST },

    async create(part) {
      const directory = await files.createDirectory(`${prefix()}${processes.own}-${run}-`);
      const removed = () => files.removeAll(directory).catch(() => {});
      try {
        const file = await media.create(`${directory}/audio.${extensionOf(part)}`);
        const discard = async () => {
          await file.discard();
          await removed();
        };
        return { ...file, discard };
      } catch (error) {
        await removed();
        throw error;
      }
    },

    storedAt(path) {
      const directory = path.slice(0, path.lastIndexOf('/'));
      return {
        read: () => files.chunks(path),
        files: { path, directory },
        discard: () => files.removeAll(directory),
      };
    },

    async sweep() {
      for (const { name, kind } of (await files.list(media.temporaryDirectory())) ?? []) {
        if (kind !== 'directory' || !name.startsWith(DIRECTORY_PREFIX) || !(await isLeftover(name))) continue;
        // Belongs to another user, who has to remove it.
        await files.removeAll(`${media.temporaryDirectory()}/${name}`).catch(() => {});
      }
    },
  };
}

/** Clips in memory, two at a time until they are discarded, since an object at the edge has 128 MB. */
function memoryStore(): ClipStore {
  const held = new Map<string, Uint8Array>();
  return {
    max: { perOwner: MAX_IN_MEMORY, total: MAX_IN_MEMORY },

    async create() {
      const place = randomString(ALPHABET, 24);
      const buffer = createByteBuffer(MAX_CLIP);
      return {
        async write(bytes) {
          buffer.push(bytes);
        },
        async finish() {
          held.set(place, buffer.bytes());
          return place;
        },
        async discard() {
          held.delete(place);
        },
      };
    },

    storedAt: (place) => ({
      async *read() {
        yield held.get(place) ?? new Uint8Array();
      },
      async discard() {
        held.delete(place);
      },
    }),

    sweep: async () => {},
  };
}
