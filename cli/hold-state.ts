import { dirname } from 'node:path';
import { makeDirectory } from '../lib/host/node/files.ts';
import { CommandError, printable } from './output.ts';
import { pause } from './pause.ts';

/** Milliseconds to wait for a lock, and at most between two attempts. */
const LOCK_TIMEOUT = 5000;
const LOCK_PAUSE = 50;

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
 * Changes a file while no other command does, so that none of their changes is lost. A kill releases the lock, which is a file
 * beside it. That stays: a process that waits for a removed one would share the lock with the one that creates it again.
 * @throws CommandError when the lock cannot be had.
 */
export async function underLock<T>(path: string, change: () => Promise<T>): Promise<T> {
  await makeDirectory(dirname(path));
  const release = await waitForLock(`${path}.lock`);
  try {
    return await change();
  } finally {
    release();
  }
}

async function waitForLock(path: string): Promise<() => void> {
  const { tryLock } = await import('../storage/sqlite.ts');
  for (const end = performance.now() + LOCK_TIMEOUT; ; ) {
    const release = tryLock(path);
    if (release) return release;
    if (performance.now() > end) {
      throw new CommandError(`another command holds ${printable(path)}`, 'Try again when it has ended.');
    }
    // Of a random length, since two that begin at the same moment keep each other out.
    await pause(LOCK_PAUSE * Math.random());
  }
}
