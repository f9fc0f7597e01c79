import type { Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { errnoOf } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { randomString } from '../kit/bytes.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import { MiB } from '../kit/units.ts';
import type { Log } from '../log.ts';
import { containerMounts, translate } from './containers.ts';
import { guessType, typeOf } from './content-types.ts';
import { createDenyList, secretPaths } from './deny-list.ts';
import { createFolders } from './folders.ts';
import { type Media, openSharedMedia } from './media.ts';
import { baseName } from './names.ts';
import { openPath, type PathRefusal, REFUSAL_TEXT } from './validate.ts';

const MAX_UPLOADS = 256;
const SWEEP_PERIOD = 300_000;
/** Maximum uploads of killed relays that one sweep removes; the next sweep continues. */
const MAX_DISCARDED = 1000;
/** Uploads, in the temporary directory. */
export const UPLOAD_PREFIX = 'svc-relay-upload-';
/** Below the agent's home: uploads received at the edge, which has deleted its copies. */
const UPLOADS_FOLDER = 'svc-relay-uploads';
/** Files that the relay may own: its uploads, and screenshots of old phones that the agent's tool writes. */
const MANAGED = /^(?:svc-relay-upload-|android_screenshot_)/;
/** The process id of an upload, in base 36, and a mark that the random names of earlier versions hardly contain. */
const WRITER = /^svc-relay-upload-([0-9a-z]{6})zz[0-9a-z]{16}(?![0-9a-z])/;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

export interface HostMediaDeps {
  host: Host;
  store: Store<'media'>;
  config: Config;
  clock: Clock;
  log: Log;
}

/** Error kinds of `openPath`: `forbidden` does not reveal whether a file exists. */
const KIND: Record<PathRefusal, 'invalid' | 'forbidden' | 'not-found'> = {
  invalid: 'invalid',
  relative: 'forbidden',
  protected: 'forbidden',
  outside: 'forbidden',
  missing: 'not-found',
  irregular: 'not-found',
  unreadable: 'forbidden',
  'too-large': 'forbidden',
};

/** Media of a home host: files, served in place. A restart forgets the index, and removes owned files. */
export async function openHostMedia({ host, store, config, clock, log }: HostMediaDeps): Promise<Media> {
  const cap = config.mediaMaxSizeMb * MiB;
  const temporary = host.media.temporaryDirectory;
  const writer = `${host.processes.own.toString(36).padStart(6, '0')}zz`;
  const isDenied = createDenyList(host, secretPaths(host, config));
  const folders = createFolders({ host, isDenied, roots });
  const uploadsFolder = () => host.media.resolve(`${config.agentHome}/${UPLOADS_FOLDER}`);
  const shared = await openSharedMedia({
    store,
    config,
    clock,
    log,
    bytes: {
      maxUploads: MAX_UPLOADS,
      newPlace: (suffix) => `${temporary()}/${UPLOAD_PREFIX}${writer}${randomString(ALPHABET, 16)}${suffix}`,
      create: (place) => host.media.create(place),

      async accept(place) {
        const found = await checked(async () => openPath(place, { host, isDenied, roots: await roots(), cap }));
        if (!found.ok) {
          log.warn(`an upload could not be stored: ${REFUSAL_TEXT[found.refusal]}`);
          return null;
        }
        await found.file.close();
        return found.path;
      },

      async open(place) {
        const found = await checked(() => openPath(place, { host, isDenied }));
        if (!found.ok) return null;
        if (found.path === place) return found.file;
        await found.file.close();
        return null;
      },

      async remove(place) {
        try {
          await host.files.remove(place);
        } catch (error) {
          log.warn(`a file of the relay could not be removed: ${codeOf(error)}`);
          throw error;
        }
      },

      durable: {
        create: async () =>
          host.media.create(`${await uploadsFolder()}/${randomString(ALPHABET, 16)}`, { isDurable: true }),
        async locations() {
          const folder = await uploadsFolder();
          return ((await host.files.list(folder)) ?? []).map(({ name }) => `${folder}/${name}`);
        },
      },
    },
  });
  const periodic: Cancel[] = [];

  /**
   * True if the process that received an upload has ended, so that its tokens are lost. In containers, process ids repeat.
   */
  function isLeftover({ path, modified }: { path: string; modified: number }): boolean {
    const id = uploadWriter(path);
    if (id === null) return false;
    return id === host.processes.own ? modified < performance.timeOrigin : !host.processes.exists(id);
  }

  /** Runs a check of a path. @throws RelayError `unavailable` if the disk cannot be read. */
  async function checked<T>(check: () => Promise<T>): Promise<T> {
    try {
      return await check();
    } catch (cause) {
      log.warn(`a path of media cannot be checked, so it is refused: ${codeOf(cause)}`);
      throw new RelayError('unavailable', 'the file cannot be checked now', { cause });
    }
  }

  /** Computed for each use, since directories move and links change. */
  async function roots(): Promise<string[]> {
    const named = [temporary(), config.workspace, ...config.mediaAllowedRoots];
    return [...new Set(await Promise.all(named.map((root) => host.media.resolve(root))))];
  }

  /** True if the relay may own a file: a direct child of the temporary directory with a name that belongs to the relay. */
  async function isManaged(path: string): Promise<boolean> {
    const at = path.lastIndexOf('/');
    return path.slice(0, at) === (await host.media.resolve(temporary())) && MANAGED.test(path.slice(at + 1));
  }

  /** Removes uploads of killed relays, and at the start everything older than any token. */
  async function discardLeftovers(isStart = false): Promise<void> {
    const oldest = isStart ? clock.now() - config.mediaTtlSeconds * 1000 : Number.NEGATIVE_INFINITY;
    const found = await host.media.ownFiles(temporary(), UPLOAD_PREFIX);
    const stale = found.filter((file) => file.modified < oldest || isLeftover(file)).slice(0, MAX_DISCARDED);
    for (const { path } of stale) await host.files.remove(path);
    if (stale.length > 0) log.info(`removed ${stale.length} uploads of an earlier run`);
  }

  return {
    ...shared,

    async register({ path, contentType, fileName, sensitive, owned }) {
      const found = await checked(async () => openPath(path, { host, isDenied, roots: await roots(), cap }));
      if (!found.ok) throw new RelayError('invalid', REFUSAL_TEXT[found.refusal]);
      const { size } = found.file;
      await found.file.close();
      if (owned && !(await checked(() => isManaged(found.path)))) {
        throw new RelayError('invalid', 'only files that the relay manages can be owned');
      }
      return shared.add({ place: found.path, contentType, fileName, size, sensitive, owned });
    },

    async openPath(given, hint) {
      const found = await checked(async () => {
        const path = await translate(given, await containerMounts(host, config), host);
        return openPath(path, { host, isDenied, roots: config.mediaStrictSandbox ? await roots() : undefined, cap });
      });
      if (!found.ok) throw new RelayError(KIND[found.refusal], REFUSAL_TEXT[found.refusal]);
      const contentType = await typeOf(found.file, hint ?? guessType(found.path));
      return { bytes: found.file, contentType, fileName: baseName(found.path) };
    },

    async folder(given) {
      if (given === null) return { path: null, entries: await checked(folders.top) };
      const found = await checked(async () =>
        folders.open(await translate(given, await containerMounts(host, config), host)),
      );
      if (typeof found !== 'string') return found;
      const text = found === 'irregular' ? 'path is not a folder' : REFUSAL_TEXT[found].replace('file', 'folder');
      throw new RelayError(KIND[found], text);
    },

    // Without the temporary directory, which holds files of any program.
    recent: () =>
      checked(async () => {
        const named = [config.workspace, ...config.mediaAllowedRoots];
        return folders.recent(await Promise.all(named.map((root) => host.media.resolve(root))));
      }),

    start() {
      const failed = (error: unknown) => log.warn(`media sweep failed: ${codeOf(error)}`);
      const sweep = async () => {
        await shared.sweep();
        await discardLeftovers();
      };
      periodic.push(every(clock, SWEEP_PERIOD, sweep, failed));
      discardLeftovers(true).catch((error) => log.warn(`old uploads could not be removed: ${codeOf(error)}`));
    },

    async stop() {
      for (const cancel of periodic.splice(0)) cancel();
      await shared.stop();
      await shared.index.clear();
    },
  };
}

/** The process that received an upload, from the path of its file; null if the name contains none. */
export function uploadWriter(path: string): number | null {
  const id = Number.parseInt(WRITER.exec(path.slice(path.lastIndexOf('/') + 1))?.[1] ?? '', 36);
  return Number.isNaN(id) ? null : id;
}

/** Only the errno, since messages contain paths. */
const codeOf = (error: unknown): string => errnoOf(error) || 'failed';
