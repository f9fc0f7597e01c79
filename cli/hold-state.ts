import { setTimeout as delay } from 'node:timers/promises';
import { CommandError, printable } from './output.ts';

/** Milliseconds between two attempts at a lock, and how many there are. */
const LOCK_PAUSE = 50;
const LOCK_ATTEMPTS = 50;

/**
 * Keeps every relay from starting on a state file until the returned function is called. A state in memory has none.
 * @throws the error of `running` while a relay runs on it.
 */
export async function holdState(
  stateFile: string | null,
  running: (stateFile: string) => CommandError,
): Promise<() => void> {
  if (stateFile === null) return () => {};
  const storage = await import('../storage/sqlite.ts');
  try {
    return storage.holdState(stateFile);
  } catch (error) {
    throw error instanceof storage.StateInUseError ? running(stateFile) : error;
  }
}

/**
 * Waits until this process alone holds the lock file `path`, which a kill releases too. Returns the release. The file stays,
 * since a process that waits for a removed one would share the lock with the one that creates it again.
 * @throws CommandError when another process keeps it for long.
 */
export async function waitForLock(path: string): Promise<() => void> {
  const { openStateFile, StateInUseError } = await import('../storage/sqlite.ts');
  for (let left = LOCK_ATTEMPTS; left > 0; left--) {
    try {
      const lock = openStateFile(path, () => {});
      return () => lock.close?.();
    } catch (error) {
      if (!(error instanceof StateInUseError)) throw error;
      await delay(LOCK_PAUSE);
    }
  }
  throw new CommandError(`another command holds ${printable(path)}`, 'Try again when it has ended.');
}
