import { constants } from 'node:fs';
import { type FileHandle, lstat, open, opendir, readlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { errnoOf, isUnreadable, unlessUnreadable } from '../errors.ts';
import type { FolderItem, OpenBytes, OpenFailure } from '../media.ts';
import { FileBody } from './file-body.ts';

/** O_NONBLOCK: opening a FIFO must not wait for a writer. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

const MISSING = new Set(['ENOENT', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP']);

/** @throws the error itself when the disk or the machine failed, since the file may well exist. */
const failureOf = (error: unknown): OpenFailure => {
  if (!isUnreadable(error)) throw error;
  const code = errnoOf(error);
  return MISSING.has(code) ? 'missing' : code === 'ENXIO' ? 'irregular' : 'unreadable';
};

/** The kernel's path of an open descriptor; null if the system has none. Rejects if it cannot be read. */
export type DescriptorPath = (fd: number) => Promise<string | null>;

export const procDescriptorPath: DescriptorPath = (fd) => unlessUnreadable(readlink(`/proc/self/fd/${fd}`));

/** Implements `HostMedia.open`. */
export function createOpener(descriptorPath: DescriptorPath = procDescriptorPath) {
  return async (path: string): Promise<OpenBytes | OpenFailure> => {
    try {
      // Opening a device may have side effects.
      if (!(await lstat(path)).isFile()) return 'irregular';
      const file = await openAt(path, descriptorPath);
      return file ?? 'missing';
    } catch (error) {
      return failureOf(error);
    }
  };
}

/** Names of a folder whose facts are read at a time. */
const BATCH = 64;

/** Implements `HostMedia.folder`. */
export function createFolderReader(descriptorPath: DescriptorPath = procDescriptorPath) {
  return async (path: string, limit: number): Promise<{ items: FolderItem[]; isCut: boolean } | OpenFailure> => {
    try {
      const folder = await open(path, FLAGS | constants.O_DIRECTORY);
      try {
        const info = await folder.stat({ bigint: true });
        const known = await descriptorPath(folder.fd);
        if (known !== null) return known === path ? await readFolder(`/proc/self/fd/${folder.fd}`, limit) : 'missing';
        // Without descriptor paths the folder is read by its name, so check before and after that the name still leads
        // to it.
        if (!(await isStill(path, info))) return 'missing';
        const read = await readFolder(path, limit);
        return (await isStill(path, info)) ? read : 'missing';
      } finally {
        await folder.close();
      }
    } catch (error) {
      return errnoOf(error) === 'ENOTDIR' ? 'irregular' : failureOf(error);
    }
  };
}

async function readFolder(path: string, limit: number): Promise<{ items: FolderItem[]; isCut: boolean }> {
  const names: string[] = [];
  // Leaving the loop closes it.
  for await (const { name } of await opendir(path)) if (names.push(name) > limit) break;
  const isCut = names.length > limit;
  const items: FolderItem[] = [];
  for (let at = 0; at < Math.min(names.length, limit); at += BATCH) {
    const batch = names.slice(at, Math.min(at + BATCH, limit));
    const found = await Promise.all(batch.map(async (name) => ({ name, facts: await factsOf(`${path}/${name}`) })));
    items.push(...found.flatMap(({ name, facts }) => (facts ? [{ name, ...facts }] : [])));
  }
  return { items, isCut };
}

/** Implements `HostMedia.facts`. */
export async function factsOf(path: string): Promise<Omit<FolderItem, 'name'> | null> {
  const info = await unlessUnreadable(lstat(path));
  if (!info) return null;
  const kind = info.isFile() ? 'file' : info.isDirectory() ? 'directory' : info.isSymbolicLink() ? 'link' : 'other';
  return { kind, size: info.size, modified: info.mtimeMs };
}

async function openAt(path: string, descriptorPath: DescriptorPath): Promise<OpenBytes | OpenFailure | null> {
  const file = await open(path, FLAGS);
  let isOwned = false;
  try {
    const info = await file.stat({ bigint: true });
    if (!info.isFile()) return 'irregular';
    const known = await descriptorPath(file.fd);
    if (known === null ? !(await isStill(path, info)) : known !== path) return null;
    isOwned = true;
    return openBytes(file, info);
  } finally {
    if (!isOwned) await file.close();
  }
}

type Identity = { dev: bigint; ino: bigint };

/** Milliseconds without a change in a directory, longer than the timestamp granularity of any file system. */
const SETTLED = 20;
const MAX_ATTEMPTS = 10;

/**
 * True if a path without links names the open file, for systems that do not report a descriptor's path. A single
 * comparison proves nothing, since directories may be swapped back and forth around it. So the two are compared while
 * no directory above changes; a swap would change its `ctime`, which cannot be set back.
 */
async function isStill(path: string, opened: Identity): Promise<boolean> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const before = await directoriesAbove(path);
    if (before === null) return false;
    const found = await lstat(path, { bigint: true });
    const after = await directoriesAbove(path);
    if (after === null || found.dev !== opened.dev || found.ino !== opened.ino) return false;
    if (before.text === after.text && before.newest + SETTLED < before.at) return true;
    await sleep(SETTLED + 5);
  }
  return false;
}

async function directoriesAbove(path: string): Promise<{ text: string; newest: number; at: number } | null> {
  const at = Date.now();
  const seen: string[] = [];
  let newest = 0;
  for (let directory = dirname(path); ; directory = dirname(directory)) {
    const info = await lstat(directory, { bigint: true });
    if (!info.isDirectory()) return null;
    seen.push(`${info.dev}:${info.ino}:${info.ctimeNs}`);
    newest = Math.max(newest, Number(info.ctimeMs));
    if (directory === dirname(directory)) return { text: seen.join(), newest, at };
  }
}

function openBytes(file: FileHandle, info: { size: bigint; mtimeNs: bigint; mtimeMs: bigint }): OpenBytes {
  let open = true;
  return {
    size: Number(info.size),
    modified: Number(info.mtimeMs),
    tag: `${info.size.toString(16)}-${info.mtimeNs.toString(16)}`,
    async head(length) {
      const { bytesRead, buffer } = await file.read(new Uint8Array(length), 0, length, 0);
      return buffer.subarray(0, bytesRead);
    },
    async body(start, end) {
      open = false;
      return new FileBody(file, start, end);
    },
    async close() {
      if (!open) return;
      open = false;
      await file.close();
    },
  };
}
