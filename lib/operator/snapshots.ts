import type { Stores } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import type { HostFiles } from '../host/index.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';

/**
 * Snapshots that stay beside a new one, since a backup may be reading them. Leftovers of killed backups are removed with
 * later ones.
 */
const MAX_SNAPSHOTS = 2;

export interface SnapshotDeps {
  files: HostFiles;
  /** Null if the state is in memory. */
  stateFile: string | null;
  stores: Pick<Stores, 'snapshot'>;
  clock: Clock;
  log: Log;
}

/** Copies of the state for backups (contract 11 §3). A snapshot is a file beside the state, mode 0600, that its reader removes. */
export function createSnapshots({ files, stateFile, stores, clock, log }: SnapshotDeps) {
  async function removeOld(prefix: string): Promise<void> {
    const [directory, start] = splitPath(prefix);
    const names = (await files.list(directory)) ?? [];
    const found = names.flatMap(({ name, kind }) => (kind === 'file' && name.startsWith(start) ? [name] : []));
    // Their names begin with the time.
    for (const name of found.sort().reverse().slice(MAX_SNAPSHOTS)) await files.remove(`${directory}/${name}`);
  }

  return {
    /**
     * Writes a snapshot and returns its path.
     * @throws RelayError `unsupported` for a state in memory, `unavailable` if it cannot be written.
     */
    async take(): Promise<string> {
      if (stateFile === null || !stores.snapshot) {
        throw new RelayError('unsupported', 'this relay keeps its state in memory');
      }
      const prefix = `${stateFile}-snapshot-`;
      const path = `${prefix}${clock.now()}-${bytesToHex(randomBytes(8))}`;
      try {
        await removeOld(prefix);
        // Otherwise, SQLite would create it with the permissions of the umask.
        await files.createExclusive(path, new Uint8Array(), 0o600);
        await stores.snapshot(path);
      } catch (error) {
        await files.remove(path).catch(() => {});
        log.warn(`a snapshot of the state cannot be written: ${describeError(error)}`);
        throw new RelayError('unavailable', 'the snapshot of the state cannot be written', { cause: error });
      }
      log.info('made a snapshot of the state for a backup');
      return path;
    },
  };
}

function splitPath(path: string): [directory: string, name: string] {
  const at = path.lastIndexOf('/');
  return [path.slice(0, at), path.slice(at + 1)];
}
