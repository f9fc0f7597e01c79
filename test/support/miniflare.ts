import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { Log, LogLevel, Miniflare, type MiniflareOptions } from 'miniflare';

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
