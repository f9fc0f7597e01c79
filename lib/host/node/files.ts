import { constants, type Stats } from 'node:fs';
import {
  access,
  chmod,
  type FileHandle,
  link,
  mkdir,
  mkdtemp,
  open,
  readdir,
  realpath,
  rename,
  rm,
  stat,
  unlink,
} from 'node:fs/promises';
import { dirname } from 'node:path';
import { concatBytes } from '../../kit/bytes.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { errnoOf, unlessMissing } from '../errors.ts';
import type { DirectoryEntry, FileFacts, HostFiles } from '../index.ts';
import { createTemporaryName, sweepTemporaryFiles } from './temporary-files.ts';
import { watchPaths } from './watch.ts';

const CHUNK = 64 * 1024;

/** Error codes of `link` without hard links: FAT and some network file systems; EACCES on Android. */
const NO_LINKS = ['EPERM', 'ENOTSUP', 'ENOSYS', 'EACCES'];

/** Files of this machine. Follows links, except in `list`, which reports them, and `writeAtomic`, which replaces them. */
export function createFiles(): HostFiles {
  return {
    read,
    readTail,
    list,
    writeAtomic,
    createExclusive,
    append,
    overwriteStart,
    remove,
    chunks,
    createDirectory: (prefix) => mkdtemp(prefix),
    tighten,
    isWritable,
    removeAll: (path) => rm(path, { recursive: true, force: true }),
    watch: watchPaths,
    async readText(path, limit) {
      const bytes = await read(path, limit);
      return bytes && decodeUtf8(bytes);
    },
    async stat(path) {
      const info = await unlessMissing(stat(path));
      return info && facts(info);
    },
    realPath: (path) => unlessMissing(realpath(path)),
  };
}

/** Runs `use` with the open file. O_NONBLOCK, since opening a FIFO without a writer would block a pool thread forever. */
async function withFile<T>(path: string, use: (file: FileHandle, size: number) => Promise<T>): Promise<T | null> {
  const file = await unlessMissing(open(path, constants.O_RDONLY | constants.O_NONBLOCK));
  if (!file) return null;
  try {
    const info = await file.stat();
    if (!info.isFile()) throw irregular(info);
    return await use(file, info.size);
  } finally {
    await file.close();
  }
}

/** The error for a path that is not a regular file. */
export function irregular(info: Stats): Error {
  const code = info.isDirectory() ? 'EISDIR' : 'EINVAL';
  return Object.assign(new Error(`${code}: not a regular file`), { code });
}

/** Reads up to `limit` bytes from `position`. Ignores the size: files in `/proc` report 0, others may grow. */
async function readSpan(file: FileHandle, position: number, limit: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let total = 0;
  while (total < limit) {
    const chunk = new Uint8Array(Math.min(CHUNK, limit - total));
    const { bytesRead } = await file.read(chunk, 0, chunk.length, position + total);
    if (bytesRead === 0) break;
    chunks.push(chunk.subarray(0, bytesRead));
    total += bytesRead;
  }
  return concatBytes(...chunks);
}

const read = (path: string, limit = Number.POSITIVE_INFINITY): Promise<Uint8Array | null> =>
  withFile(path, (file) => readSpan(file, 0, limit));

const readTail = (path: string, bytes: number): Promise<string | null> =>
  withFile(path, async (file, size) =>
    decodeUtf8(await readSpan(file, Math.max(0, size - bytes), Math.min(bytes, size))),
  );

async function* chunks(path: string): AsyncGenerator<Uint8Array> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const info = await file.stat();
    if (!info.isFile()) throw irregular(info);
    for (;;) {
      const chunk = new Uint8Array(CHUNK);
      const { bytesRead } = await file.read(chunk, 0, CHUNK);
      if (bytesRead === 0) return;
      yield chunk.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

const facts = (info: Stats): FileFacts => ({
  kind: info.isFile() ? 'file' : info.isDirectory() ? 'directory' : 'other',
  size: info.size,
  modified: info.mtimeMs,
  mode: info.mode & 0o7777,
});

async function list(directory: string): Promise<DirectoryEntry[] | null> {
  const entries = await unlessMissing(readdir(directory, { withFileTypes: true }));
  return (
    entries?.map((entry) => ({
      name: entry.name,
      kind: entry.isFile() ? 'file' : entry.isDirectory() ? 'directory' : entry.isSymbolicLink() ? 'link' : 'other',
    })) ?? null
  );
}

async function writeAtomic(path: string, bytes: Uint8Array, mode: number): Promise<void> {
  const directory = await makeParent(path);
  await sweepTemporaryFiles(directory, remove);
  const temporary = `${directory}/${createTemporaryName()}`;
  await fill(temporary, bytes, mode);
  try {
    await rename(temporary, path);
  } catch (error) {
    await remove(temporary);
    throw error;
  }
  await syncDirectory(directory);
}

async function createExclusive(path: string, bytes: Uint8Array, mode: number): Promise<void> {
  const directory = await makeParent(path);
  await fill(path, bytes, mode);
  await syncDirectory(directory);
}

async function append(path: string, bytes: Uint8Array): Promise<void> {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  const flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  const openFile = () => open(path, flags, 0o600);
  let file = await unlessMissing(openFile());
  if (!file) {
    await makeDirectory(dirname(path));
    file = await openFile();
  }
  try {
    await file.writeFile(bytes);
  } finally {
    await file.close();
  }
}

async function overwriteStart(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    for (let done = 0; done < bytes.length; ) {
      done += (await file.write(bytes, done, bytes.length - done, done)).bytesWritten;
    }
  } finally {
    await file.close();
  }
}

/** Creates a file that must not exist yet, private until it is complete. Removes it on failure. */
export async function fill(path: string, bytes: Uint8Array, mode: number): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    try {
      await file.writeFile(bytes);
      await file.sync();
      await file.chmod(mode);
    } finally {
      await file.close();
    }
  } catch (error) {
    await remove(path).catch(() => {});
    throw error;
  }
}

/**
 * Moves a complete file to a name that must not exist yet, EEXIST otherwise. On a file system without hard links, an empty
 * file reserves the name until the rename.
 */
export async function moveToNew(from: string, to: string, makeLink = link): Promise<void> {
  try {
    await makeLink(from, to);
  } catch (error) {
    if (!NO_LINKS.includes(errnoOf(error))) throw error;
    await fill(to, new Uint8Array(), 0o600);
    try {
      return await rename(from, to);
    } catch (failure) {
      await remove(to);
      throw failure;
    }
  }
  await remove(from);
}

/**
 * Creates a directory and its missing parents, mode 0700. Returns the first one that it created, undefined when all
 * exist. Node's own recursion never ends below `/proc`, where nothing can be created and the parent exists (20.20.2).
 */
export async function makeDirectory(path: string, isSecond = false): Promise<string | undefined> {
  try {
    await mkdir(path, 0o700);
    return path;
  } catch (error) {
    const code = errnoOf(error);
    if (code === 'EEXIST' && (await isDirectory(path))) return undefined;
    const parent = dirname(path);
    if (code !== 'ENOENT' || parent === path || isSecond) throw error;
    // Another process may have created the parent meanwhile.
    const first = (await isDirectory(parent)) ? undefined : await makeDirectory(parent);
    const own = await makeDirectory(path, true);
    return first ?? own;
  }
}

const isDirectory = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );

/** Creates missing directories above `path` and makes their entries durable. Returns the directory. */
export async function makeParent(path: string): Promise<string> {
  const directory = dirname(path);
  const first = await makeDirectory(directory);
  if (first) {
    for (let made = directory; made.length >= first.length; made = dirname(made)) await syncDirectory(dirname(made));
  }
  return directory;
}

export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function remove(path: string): Promise<void> {
  await unlessMissing(unlink(path));
}

async function tighten(path: string, mode: number): Promise<boolean | null> {
  const info = await unlessMissing(stat(path));
  if (info === null) return null;
  const present = info.mode & 0o7777;
  if ((present & ~mode) === 0) return false;
  return unlessMissing(chmod(path, present & mode).then(() => true));
}

async function isWritable(path: string): Promise<boolean> {
  try {
    await access(path, (await stat(path)).isDirectory() ? constants.W_OK | constants.X_OK : constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
