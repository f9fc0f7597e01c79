import { randomBytes } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { createProcesses } from './processes.ts';

/** Milliseconds after which a temporary file is stale even if a process with its id exists, since ids are reused. */
const STALE_AFTER = 60 * 60 * 1000;

/** Maximum files that one sweep removes; the next sweep continues. */
const MAX_REMOVED = 1000;

/** The second form is that of earlier versions, without a process id. */
const TEMPORARY = /^\.(?:svc-relay-(\d+)-)?[0-9a-f]{24}\.tmp$/;

/**
 * A name for a file that will replace another one. It contains the process id, so that files of killed processes are
 * found.
 */
export const createTemporaryName = (): string => `.svc-relay-${process.pid}-${randomBytes(12).toString('hex')}.tmp`;

/**
 * Removes temporary files of killed processes from a directory, except the names in `live`, at most 1,000. A file that
 * cannot be removed is left for the next sweep. Never rejects.
 */
export async function sweepTemporaryFiles(
  directory: string,
  remove: (path: string) => Promise<void>,
  live: ReadonlySet<string> = new Set(),
): Promise<void> {
  let removed = 0;
  for (const name of await readdir(directory).catch(() => [])) {
    const found = TEMPORARY.exec(name);
    if (!found || live.has(name)) continue;
    const path = `${directory}/${name}`;
    const info = await stat(path).catch(() => null);
    if (info === null || !isStale(found[1], info.mtimeMs)) continue;
    if (++removed > MAX_REMOVED) return;
    await remove(path).catch(() => {});
  }
}

/** In containers, every relay may have the same process id. Then the file is stale if it is older than the process. */
function isStale(writer: string | undefined, modified: number): boolean {
  if (writer === String(process.pid)) return modified < performance.timeOrigin;
  const isWriting = writer === undefined || createProcesses().exists(Number(writer));
  return !isWriting || modified < Date.now() - STALE_AFTER;
}
