import { type FileHandle, lstat, open, readdir, readlink, realpath, stat, unlink } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { dirname } from 'node:path';
import { unlessMissing, unlessUnreadable } from '../errors.ts';
import type { HostMedia, NewBytes } from '../media.ts';
import { makeParent, syncDirectory } from './files.ts';
import { createFolderReader, createOpener, type DescriptorPath, factsOf } from './open-exact.ts';
import { recordedHome } from './users.ts';

const MAX_LINKS = 40;

export interface NodeMediaOptions {
  env: Readonly<Record<string, string | undefined>>;
  /** Replaced in tests of systems without it. */
  descriptorPath?: DescriptorPath;
}

/** Media files of this machine. */
export function createMediaFiles({ env, descriptorPath }: NodeMediaOptions): HostMedia {
  return {
    temporaryDirectory: () => (env.TMPDIR || tmpdir()).replace(/(?<=.)\/+$/, ''),
    currentDirectory: () => process.cwd(),
    userHomes: () => [...new Set([env.HOME || homedir(), recordedHome() ?? ''].filter((home) => home.startsWith('/')))],
    ignoresCase: process.platform === 'darwin' || process.platform === 'win32',
    open: createOpener(descriptorPath),
    folder: createFolderReader(descriptorPath),
    facts: factsOf,
    create,
    async resolve(path) {
      return (await unlessUnreadable(realpath(path))) ?? resolveByName(path);
    },
    async directoryState(directories) {
      const facts = await Promise.all(directories.map((path) => unlessUnreadable(stat(path, { bigint: true }))));
      return {
        state: facts.map((each) => (each ? `${each.dev}:${each.ino}:${each.ctimeNs}` : '-')).join(' '),
        changed: Math.max(0, ...facts.map((each) => Number(each?.ctimeMs ?? 0))),
      };
    },
    async isSame(path, other) {
      const [one, two] = await Promise.all([path, other].map((each) => unlessUnreadable(stat(each, { bigint: true }))));
      return !!one && !!two && one.dev === two.dev && one.ino === two.ino;
    },
    async ownFiles(directory, prefix) {
      const names = (await readdir(directory)).filter((name) => name.startsWith(prefix));
      const found: { path: string; modified: number }[] = [];
      // Sequentially, since anybody can fill a shared directory with such names.
      for (const name of names) {
        const file = await ownFile(`${directory}/${name}`);
        if (file) found.push(file);
      }
      return found;
    },
  };
}

async function ownFile(path: string): Promise<{ path: string; modified: number } | null> {
  const info = await unlessMissing(lstat(path));
  if (!info?.isFile() || info.uid !== process.getuid?.()) return null;
  return { path, modified: info.mtimeMs };
}

const partsOf = (path: string): string[] => path.split('/').filter((part) => part !== '' && part !== '.');

/** Like `realpath`, but also for a path that does not exist. Follows dangling links too. */
async function resolveByName(path: string): Promise<string> {
  const left = partsOf(path);
  let links = 0;
  let real = '';
  for (let part = left.shift(); part !== undefined; part = left.shift()) {
    if (part === '..') {
      real = real.slice(0, Math.max(0, real.lastIndexOf('/')));
      continue;
    }
    const next = `${real}/${part}`;
    const target = links < MAX_LINKS ? await unlessUnreadable(readlink(next)) : null;
    if (target === null) {
      real = next;
      continue;
    }
    links++;
    if (target.startsWith('/')) real = '';
    left.unshift(...partsOf(target));
  }
  return real || '/';
}

/** Bytes, and chunks, to gather before a write: each write costs a trip to another thread. */
const BATCH = 512 * 1024;
const BATCH_CHUNKS = 64;

async function create(path: string, { isDurable = false } = {}): Promise<NewBytes> {
  if (isDurable) await makeParent(path);
  // `wx` is O_EXCL, which also follows no link.
  const file: FileHandle = await open(path, 'wx', 0o600);
  let batch: Uint8Array[] = [];
  let gathered = 0;
  async function flush(): Promise<void> {
    const [chunks, size] = [batch, gathered];
    [batch, gathered] = [[], 0];
    let done = (await file.writev(chunks)).bytesWritten;
    if (done === size) return;
    // The disk is nearly full; the next write reports it.
    for (const bytes = Buffer.concat(chunks, size); done < size; ) {
      done += (await file.write(bytes, done, size - done)).bytesWritten;
    }
  }
  return {
    async write(bytes) {
      batch.push(bytes);
      gathered += bytes.length;
      if (gathered >= BATCH || batch.length === BATCH_CHUNKS) await flush();
    },
    async finish() {
      if (gathered > 0) await flush();
      if (isDurable) await file.sync();
      await file.close();
      if (isDurable) await syncDirectory(dirname(path));
      return path;
    },
    async discard() {
      await file.close().catch(() => {});
      await unlink(path).catch(() => {});
    },
  };
}
