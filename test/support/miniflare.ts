import { readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { Log, LogLevel, Miniflare, type MiniflareOptions } from 'miniflare';
import { vi } from 'vitest';
import { TIMEOUT } from './limits.ts';

export interface LocalRuntime {
  /** The bundle that it runs. */
  scriptPath: string;
  bindings: Record<string, string>;
  durableObjects: Record<string, { className: string; useSQLite: true }>;
  /** Directory of the objects' state. */
  persist: string;
  /** Gets the lines that the code inside logs. */
  log: string[];
  /** Further options of the runtime. */
  options?: Partial<MiniflareOptions>;
}

/** Starts the local edge runtime on a free port of loopback. */
export async function startMiniflare({ scriptPath, bindings, durableObjects, persist, log, options }: LocalRuntime) {
  const miniflare = new Miniflare({
    modules: true,
    scriptPath,
    modulesRoot: dirname(scriptPath),
    modulesRules: [{ type: 'ESModule', include: ['**/*.mjs'] }],
    compatibilityDate: '2026-03-01',
    host: '127.0.0.1',
    port: 0,
    cf: false,
    log: new Log(LogLevel.ERROR),
    handleRuntimeStdio(stdout: Readable, stderr: Readable) {
      for (const input of [stdout, stderr]) createInterface({ input }).on('line', (line) => log.push(line));
    },
    bindings,
    durableObjects,
    durableObjectsPersist: persist,
    ...options,
  } as MiniflareOptions);
  return { miniflare, port: Number((await miniflare.ready).port) };
}

/** The databases of the objects below a directory. */
export async function databasesBelow(directory: string): Promise<string[]> {
  const paths = await readdir(directory, { recursive: true });
  return paths.filter((path) => /[0-9a-f]{64}\.sqlite$/.test(path)).map((path) => join(directory, path));
}

/**
 * Resolves once the objects of these databases, which have written something, have been put away: the local runtime does that some
 * ten seconds after the last event, and empties their logs into the files.
 */
export const untilPutAway = (databases: string[]): Promise<void> =>
  vi.waitFor(
    async () => {
      for (const path of databases) {
        const size = await stat(`${path}-wal`).then(
          (log) => log.size,
          () => 0,
        );
        if (size > 0) throw new Error(`${path} is still open`);
      }
    },
    { timeout: 2 * TIMEOUT, interval: 100 },
  );
