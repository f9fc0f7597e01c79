import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, realpath, rename } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { concatBytes } from '../../kit/bytes.ts';
import { errnoOf, unlessMissing } from '../errors.ts';
import type { HomeFile, HomeFiles, MayReplace, ReadLimits, Written } from '../home-files.ts';
import { fill, irregular, remove, syncDirectory } from './files.ts';
import { procDescriptorPath } from './open-exact.ts';
import { createTemporaryName, sweepTemporaryFiles } from './temporary-files.ts';

const CHUNK = 64 * 1024;
const MAX_ATTEMPTS = 20;
/** Mode of new files, regardless of the umask (contract 07 §1.5). */
const MODE = 0o600;
/** Largest file whose digest a write computes before replacing it. */
const MAX_PRESENT = 8 * 1024 * 1024;

export function createHomeFiles(): HomeFiles {
  const queue = createKeyedQueue();
  /** Names of the temporary files of running writes. */
  const live = new Set<string>();
  return {
    read,
    sweep: (directory) => sweepTemporaryFiles(directory, remove, live),
    async write(home, path, bytes, mayReplace) {
      // A refused write does not create the directory either.
      if ((await realOf(dirname(path))) === null && !mayReplace(null)) return 'refused';
      for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        const target = await targetOf(home, path);
        if (target === null) return 'outside';
        // Some file systems treat two spellings as one file.
        const written = await queue(target.toLowerCase(), () =>
          anchored(dirname(target), (directory) => replace(directory, basename(target), bytes, mayReplace, live)),
        );
        if (written !== 'moved') return written;
      }
      throw changing('directory');
    },
  };
}

async function read(home: string, path: string, limits: ReadLimits): Promise<HomeFile | 'missing' | 'outside'> {
  // A file that is replaced all the time may be a different one at each access.
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    // O_NONBLOCK, since opening a FIFO without a writer would block a pool thread forever.
    const file = await unlessMissing(open(path, constants.O_RDONLY | constants.O_NONBLOCK));
    if (!file) return 'missing';
    try {
      const place = await placeOf(home, path, file);
      if (place === 'outside') return 'outside';
      if (place === 'inside') return await readOpened(file, limits);
    } finally {
      await file.close();
    }
  }
  throw changing('file');
}

const changing = (what: string): Error =>
  Object.assign(new Error(`EAGAIN: the ${what} changes too often`), { code: 'EAGAIN' });

/** Returns whether the file opened at `path` is below `home`, judging its real path by the descriptor. */
async function placeOf(home: string, path: string, file: FileHandle): Promise<'inside' | 'outside' | 'moved'> {
  const [top, real] = await Promise.all([realOf(home), realOf(path)]);
  if (top === null || real === null) return 'moved';
  if (!isBelow(real, top)) return 'outside';
  const known = await procDescriptorPath(file.fd);
  if (known !== null) return known === real ? 'inside' : 'moved';
  const [opened, found] = await Promise.all([
    file.stat({ bigint: true }),
    unlessMissing(lstat(real, { bigint: true })),
  ]);
  return found?.ino === opened.ino && found.dev === opened.dev ? 'inside' : 'moved';
}

const realOf = (path: string): Promise<string | null> => unlessMissing(realpath(path));

const isBelow = (path: string, top: string): boolean => path.startsWith(top === '/' ? top : `${top}/`);

/** Reads the file once, so that content and digest are of the same bytes. */
async function readOpened(file: FileHandle, { content, digest }: ReadLimits): Promise<HomeFile> {
  const info = await file.stat();
  if (!info.isFile()) throw irregular(info);
  const hash = info.size <= digest ? createHash('sha256') : null;
  const wanted = hash ? digest : content;
  const chunks: Uint8Array[] = [];
  let total = 0;
  for (;;) {
    const chunk = new Uint8Array(Math.min(CHUNK, wanted + 1 - total));
    const { bytesRead } = chunk.length === 0 ? { bytesRead: 0 } : await file.read(chunk, 0, chunk.length, total);
    if (bytesRead === 0) break;
    if (total < content) chunks.push(chunk.subarray(0, Math.min(bytesRead, content - total)));
    hash?.update(chunk.subarray(0, bytesRead));
    total += bytesRead;
  }
  // The file may have grown or shrunk since `stat`.
  const size = hash && total <= digest ? total : Math.max(info.size, total);
  return { bytes: concatBytes(...chunks), size, sha256: hash && total <= digest ? hash.digest('hex') : null };
}

/** Real path of a write to `path`; null when it is outside `home`. Creates the directory if it is missing. */
async function targetOf(home: string, path: string): Promise<string | null> {
  const top = await realpath(home);
  const directory = dirname(path);
  await makeDirectory(directory);
  const parent = await realOf(directory);
  if (parent === null || (parent !== top && !isBelow(parent, top))) return null;
  const target = `${parent}/${basename(path)}`;
  const info = await unlessMissing(lstat(target));
  if (!info?.isSymbolicLink()) return target;
  const real = await realOf(target);
  return real !== null && isBelow(real, top) ? real : null;
}

async function makeDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, 0o700);
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return;
    throw error;
  }
  await syncDirectory(dirname(directory));
}

/**
 * Calls `use` with a path that leads to the directory even if directories above it are swapped. Returns `moved` if the
 * directory is no longer at its real path. Without descriptor paths, the system's real path is used.
 */
async function anchored<T>(directory: string, use: (anchor: string) => Promise<T>): Promise<T | 'moved'> {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  const handle = await open(directory, flags).catch(async (error: unknown) => {
    const found = await unlessMissing(lstat(directory));
    if (!found || found.isSymbolicLink()) return null;
    throw error;
  });
  if (!handle) return 'moved';
  try {
    const known = await procDescriptorPath(handle.fd);
    if (known === null) return await use(directory);
    return known === directory ? await use(`/proc/self/fd/${handle.fd}`) : 'moved';
  } finally {
    await handle.close();
  }
}

async function replace(
  directory: string,
  name: string,
  bytes: Uint8Array,
  mayReplace: MayReplace,
  live: Set<string>,
): Promise<Written | 'refused'> {
  const target = `${directory}/${name}`;
  await sweepTemporaryFiles(directory, remove, live);
  const present = await readPresent(target);
  if (!mayReplace(present)) return 'refused';
  const temporaryName = createTemporaryName();
  const temporary = `${directory}/${temporaryName}`;
  live.add(temporaryName);
  try {
    await fill(temporary, bytes, present?.mode ?? MODE);
    // Checked again: other programs write these files too, and the write may have taken long.
    if (!mayReplace(await readPresent(target))) {
      await remove(temporary);
      return 'refused';
    }
    await rename(temporary, target);
  } catch (error) {
    await remove(temporary).catch(() => {});
    throw error;
  } finally {
    live.delete(temporaryName);
  }
  await syncDirectory(directory);
  return { sha256: createHash('sha256').update(bytes).digest('hex') };
}

/** The file to be replaced. The target is a real path: a link placed there in the meantime is not followed. */
async function readPresent(target: string): Promise<{ sha256: string | null; mode: number } | null> {
  const info = await unlessMissing(lstat(target));
  if (!info) return null;
  if (!info.isFile()) throw irregular(info);
  const mode = info.mode & 0o777;
  const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW;
  let file: FileHandle | null;
  try {
    file = await unlessMissing(open(target, flags));
  } catch (error) {
    // An unreadable file may still be replaced.
    if (errnoOf(error) === 'EACCES') return { sha256: null, mode };
    throw error;
  }
  if (!file) return null;
  try {
    return { sha256: (await readOpened(file, { content: 0, digest: MAX_PRESENT })).sha256, mode };
  } finally {
    await file.close();
  }
}

/** Runs tasks of the same key one after another; a failed task does not stop the next one. Idle keys are forgotten. */
function createKeyedQueue(): <T>(key: string, task: () => Promise<T>) => Promise<T> {
  const last = new Map<string, Promise<unknown>>();
  return (key, task) => {
    const run = (last.get(key) ?? Promise.resolve()).then(task, task);
    const done = run
      .catch(() => {})
      .finally(() => {
        if (last.get(key) === done) last.delete(key);
      });
    last.set(key, done);
    return run;
  };
}
