import type { CommandError } from './output.ts';

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
