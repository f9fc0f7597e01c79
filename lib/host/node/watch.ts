import { type FSWatcher, watch } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';

const DEBOUNCE_MS = 200;
/** A watch costs kernel memory: what lies beyond is left to the caller's periodic look. */
const MOST_WATCHES = 256;

/** Looks per refresh, should directories come and go all the time. */
const MOST_ROUNDS = 5;

/** Names that matter in a watched directory; `null` is every name. */
type Names = Set<string> | null;

interface OpenWatch {
  watcher: FSWatcher;
  /** Tells a directory from a new one of the same path, whose events the old watch does not see. */
  identity: string;
  names: Names;
}

/**
 * Calls `changed` about 200 ms after the first of a burst of events in one of `paths`: the path itself, its entries,
 * and those of its direct subdirectories. A missing path is awaited in its nearest existing parent. Never throws
 * (where the system has no watches left, nothing is called) and keeps no process alive. Returns its end.
 */
export function watchPaths(paths: string[], changed: () => void): () => void {
  const watches = new Map<string, OpenWatch>();
  let timer: NodeJS.Timeout | undefined;
  let ended = false;

  const close = (directory: string) => {
    watches.get(directory)?.watcher.close();
    watches.delete(directory);
  };

  const touched = () => {
    if (ended || timer) return;
    timer = setTimeout(async () => {
      timer = undefined;
      // Before the call, so that what changes in a directory that is only now watched is not lost between the two.
      await refresh();
      if (!ended) changed();
    }, DEBOUNCE_MS);
    timer.unref();
  };

  const begin = (directory: string, identity: string, names: Names): boolean => {
    try {
      const opened: OpenWatch = { watcher: watch(directory, { persistent: false }), identity, names };
      opened.watcher.on('change', (_event, name) => {
        if (name === null || opened.names === null || opened.names.has(String(name))) touched();
      });
      opened.watcher.on('error', () => {
        if (watches.get(directory) === opened) close(directory);
      });
      watches.set(directory, opened);
      return true;
    } catch {
      // No watches left, or the directory went away: the caller's periodic look has to do.
      return false;
    }
  };

  /** Opens and closes watches to fit what is there. Returns whether any was opened. */
  const reconcile = async (): Promise<boolean> => {
    const wanted = await directoriesOf(paths).catch(() => null);
    if (ended || !wanted) return false;
    let opened = false;
    for (const directory of [...watches.keys()]) if (!wanted.has(directory)) close(directory);
    for (const [directory, { identity, names }] of wanted) {
      const open = watches.get(directory);
      if (open?.identity === identity) {
        open.names = names;
        continue;
      }
      close(directory);
      opened = begin(directory, identity, names) || opened;
    }
    return opened;
  };

  const refresh = async () => {
    // Again after opening: a directory made between the look and the watch gave no event.
    for (let round = 0; round < MOST_ROUNDS && (await reconcile()); round++) if (round > 0) touched();
  };

  void refresh();
  return () => {
    ended = true;
    clearTimeout(timer);
    for (const directory of [...watches.keys()]) close(directory);
  };
}

/** The directories to watch for `paths`, at most `MOST_WATCHES`. */
async function directoriesOf(paths: string[]): Promise<Map<string, { identity: string; names: Names }>> {
  const wanted = new Map<string, { identity: string; names: Names }>();
  const want = (directory: string, identity: string, name: string | null) => {
    const known = wanted.get(directory);
    if (!known && wanted.size >= MOST_WATCHES) return;
    const names = name === null || known?.names === null ? null : new Set(known?.names).add(name);
    wanted.set(directory, { identity, names });
  };
  for (const path of paths) {
    let child = path;
    let identity = await directoryIdentity(dirname(child));
    while (identity === null && child !== dirname(child)) {
      child = dirname(child);
      identity = await directoryIdentity(dirname(child));
    }
    if (identity !== null) want(dirname(child), identity, basename(child));
  }
  for (const path of paths) {
    const identity = await directoryIdentity(path);
    if (identity === null) continue;
    want(path, identity, null);
    for (const entry of await readdir(path, { withFileTypes: true }).catch(() => [])) {
      if (wanted.size >= MOST_WATCHES) return wanted;
      if (!entry.isDirectory()) continue;
      const below = await directoryIdentity(`${path}/${entry.name}`);
      if (below !== null) want(`${path}/${entry.name}`, below, null);
    }
  }
  return wanted;
}

async function directoryIdentity(path: string): Promise<string | null> {
  try {
    const info = await stat(path);
    return info.isDirectory() ? `${info.dev}:${info.ino}:${info.birthtimeMs}` : null;
  } catch {
    return null;
  }
}
