import { type FSWatcher, watch } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';

const DEBOUNCE_MS = 200;
/** Watches cost kernel memory, so the caller's periodic scan covers further directories. */
const MAX_WATCHES = 256;

/** Rounds per refresh, in case directories keep changing. */
const MAX_ROUNDS = 5;

/** Relevant names in a watched directory; `null` for all of them. */
type Names = Set<string> | null;

interface OpenWatch {
  watcher: FSWatcher;
  /** Distinguishes a directory from a new one of the same path, whose events the old watch misses. */
  identity: string;
  names: Names;
}

/**
 * Calls `changed` about 200 ms after the first event of a burst in one of `paths`: the path itself, its entries, and those
 * of its direct subdirectories. Waits for a missing path in its nearest existing parent. Never throws (if the system runs
 * out of watches, `changed` is not called), and keeps no process alive. Returns the stop function.
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
      // Awaited first, so that no change in a newly watched directory is missed.
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
      // No watches are left, or the directory is gone; the caller's periodic scan has to suffice.
      return false;
    }
  };

  /** Opens and closes watches to match the directories. Returns whether any was opened. */
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
    // Repeated after opening: a directory created between the listing and the watch caused no event.
    for (let round = 0; round < MAX_ROUNDS && (await reconcile()); round++) if (round > 0) touched();
  };

  void refresh();
  return () => {
    ended = true;
    clearTimeout(timer);
    for (const directory of [...watches.keys()]) close(directory);
  };
}

/** The directories to watch for `paths`, at most `MAX_WATCHES`. */
async function directoriesOf(paths: string[]): Promise<Map<string, { identity: string; names: Names }>> {
  const wanted = new Map<string, { identity: string; names: Names }>();
  const want = (directory: string, identity: string, name: string | null) => {
    const known = wanted.get(directory);
    if (!known && wanted.size >= MAX_WATCHES) return;
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
      if (wanted.size >= MAX_WATCHES) return wanted;
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
