/** Error codes for a path that does not exist. */
const MISSING = new Set(['ENOENT', 'ENOTDIR']);

/**
 * Error codes for a path that stays unusable for this account: no permission, another kind of file, or a loop of links.
 */
const UNREADABLE = new Set([
  ...MISSING,
  ...['EACCES', 'EPERM', 'EISDIR', 'EINVAL', 'ELOOP', 'ENAMETOOLONG', 'ENXIO', 'EAGAIN'],
]);

/** True if a file access failed because the path does not exist: the only failure that may count as "nothing there". */
export const isMissing = (error: unknown): boolean => MISSING.has(errnoOf(error));

/** True if a file access failed permanently, rather than because the disk or the machine failed. */
export const isUnreadable = (error: unknown): boolean => UNREADABLE.has(errnoOf(error));

/** Null when the path does not exist. Throws on every other failure, so that a check of a path fails closed. */
export const unlessMissing = <T>(reading: Promise<T>): Promise<T | null> => unless(isMissing, reading);

/**
 * Null when the file cannot be read (missing, no permission, a directory, a loop of links). Throws when the disk fails
 * or the machine is short of descriptors or memory, in which case the file may well exist.
 */
export const unlessUnreadable = <T>(reading: Promise<T>): Promise<T | null> => unless(isUnreadable, reading);

async function unless<T>(isNothing: (error: unknown) => boolean, reading: Promise<T>): Promise<T | null> {
  try {
    return await reading;
  } catch (error) {
    if (isNothing(error)) return null;
    throw error;
  }
}

/** The errno of a failed file access, or `''`. */
export const errnoOf = (error: unknown): string => {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' ? code : '';
};
