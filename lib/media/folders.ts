import type { Host } from '../host/index.ts';
import type { FolderItem, OpenFailure } from '../host/media.ts';
import type { DenyList } from './deny-list.ts';
import { isUnder } from './paths.ts';
import { locate, type PathRefusal } from './validate.ts';

/** Maximum names read of one folder. */
const MAX_READ = 5_000;
/** Maximum entries of one folder in an answer, the newest first. */
const MAX_ENTRIES = 500;
/** Entries that are checked at the same time. */
const BATCH = 32;
/** Limits of a search for recent files: files in the answer, folders and names to visit, and levels. */
const MAX_RECENT = 50;
const MAX_FOLDERS = 200;
const MAX_NAMES = 20_000;
const MAX_DEPTH = 5;
/** Folders of tools, full of generated files. */
const SKIPPED = /^(?:\.|node_modules$|__pycache__$|venv$)/;

export interface FolderEntry {
  name: string;
  /** In the form of `GET /media/by-path`. */
  path: string;
  kind: 'file' | 'folder';
  /** Bytes of a file. */
  size: number;
  /** Epoch milliseconds. */
  modified: number;
}

export interface Folder {
  /** The real path, without links. */
  path: string;
  /** The folder above; null for a folder that is allowed itself. */
  parent: string | null;
  /** Newest first. */
  entries: FolderEntry[];
  /** True if the folder contains more. */
  isCut: boolean;
}

export interface FoldersDeps {
  host: Pick<Host, 'media'>;
  isDenied: DenyList;
  /** Real paths of the folders that media settings allow. */
  roots(): Promise<string[]>;
}

/**
 * The folders that media settings allow (contract 04 §2), for a person who browses for a file. Locations are checked like
 * the path of a file, and protected ones are not listed either.
 */
export function createFolders({ host, isDenied, roots }: FoldersDeps) {
  /** Entries that may be served, in the same order. A link counts as its target, within the allowed folders. */
  async function allowed(folder: string, items: readonly FolderItem[], within: readonly string[]) {
    const found: FolderEntry[] = [];
    for (let at = 0; at < items.length; at += BATCH) {
      const batch = items.slice(at, at + BATCH).map((item) => entryOf(folder, item, within));
      for (const entry of await Promise.all(batch)) if (entry) found.push(entry);
    }
    return found;
  }

  async function entryOf(folder: string, item: FolderItem, within: readonly string[]): Promise<FolderEntry | null> {
    const path = `${folder === '/' ? '' : folder}/${item.name}`;
    const facts = item.kind === 'link' ? await behindLink(path, within) : item;
    if (!facts || (facts.kind !== 'file' && facts.kind !== 'directory') || (await isDenied(path))) return null;
    const { size, modified } = facts;
    const isFolder = facts.kind === 'directory';
    return { name: item.name, path, kind: isFolder ? 'folder' : 'file', size: isFolder ? 0 : size, modified };
  }

  async function behindLink(path: string, within: readonly string[]) {
    const real = await host.media.resolve(path);
    if (!within.some((root) => isUnder(real, root)) || (await isDenied(real))) return null;
    return host.media.facts(real);
  }

  /** Entries of a folder by its real path. */
  async function list(real: string, within: readonly string[], limit: number): Promise<Folder | OpenFailure> {
    const listed = await host.media.folder(real, MAX_READ);
    if (typeof listed === 'string') return listed;
    const newest = listed.items.toSorted((a, b) => b.modified - a.modified);
    const entries = await allowed(real, newest.slice(0, limit), within);
    const parent = within.includes(real) ? null : real.slice(0, real.lastIndexOf('/')) || '/';
    return { path: real, parent, entries, isCut: listed.isCut || newest.length > limit };
  }

  return {
    /** The allowed folders that exist. */
    async top(): Promise<FolderEntry[]> {
      const found = await Promise.all(
        (await roots()).map(async (path): Promise<FolderEntry | null> => {
          const facts = (await isDenied(path)) ? null : await host.media.facts(path);
          if (facts?.kind !== 'directory') return null;
          const name = path.slice(path.lastIndexOf('/') + 1) || '/';
          return { name, path, kind: 'folder', size: 0, modified: facts.modified };
        }),
      );
      return found.filter((entry) => entry !== null);
    },

    /** The entries of a folder, by its untrusted path; else the first failed check. */
    async open(path: string): Promise<Folder | PathRefusal> {
      const within = await roots();
      const located = await locate(path, { host, isDenied, roots: within });
      return typeof located === 'string' ? located : list(located.path, within, MAX_ENTRIES);
    },

    /** The newest files below some of the allowed folders. Visits at most 200 folders and 20,000 names. */
    async recent(below: readonly string[]): Promise<FolderEntry[]> {
      const within = await roots();
      const seenFolders = new Set(below.filter((path) => within.includes(path)));
      const waiting = [...seenFolders].map((path) => ({ path, depth: 0 }));
      let files: FolderItemAt[] = [];
      let names = 0;
      for (let at = 0; at < waiting.length && names < MAX_NAMES; at++) {
        const { path, depth } = waiting[at] as (typeof waiting)[number];
        if (await isDenied(path)) continue;
        // A folder on a failing disk is skipped, so that the others are still searched.
        const found = host.media.folder(path, Math.min(MAX_READ, MAX_NAMES - names));
        const listed = await found.catch(() => 'unreadable' as const);
        if (typeof listed === 'string') continue;
        names += listed.items.length;
        const seen = listed.items.filter(({ name }) => !SKIPPED.test(name));
        for (const { name, kind } of seen) {
          const inside = `${path}/${name}`;
          if (kind !== 'directory' || depth >= MAX_DEPTH || seenFolders.size >= MAX_FOLDERS) continue;
          if (!seenFolders.has(inside)) waiting.push({ path: inside, depth: depth + 1 });
          seenFolders.add(inside);
        }
        files.push(...seen.filter(({ kind }) => kind === 'file').map((item) => ({ folder: path, item })));
        files = files.sort((a, b) => b.item.modified - a.item.modified).slice(0, 2 * MAX_RECENT);
      }
      const entries = await Promise.all(files.map(({ folder, item }) => entryOf(folder, item, within)));
      return entries.filter((entry) => entry !== null).slice(0, MAX_RECENT);
    },
  };
}

interface FolderItemAt {
  folder: string;
  item: FolderItem;
}
