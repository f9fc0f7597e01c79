/** Codes of a path that names nothing. */
const MISSING = new Set(['ENOENT', 'ENOTDIR']);

/** Codes of a path that this account cannot use, now or later: without permission, of another kind, in a loop of links. */
const UNREADABLE = new Set([
  ...MISSING,
  ...['EACCES', 'EPERM', 'EISDIR', 'EINVAL', 'ELOOP', 'ENAMETOOLONG', 'ENXIO', 'EAGAIN'],
]);

/**
 * True if a file access failed because there is nothing at the path: the only failure that may count as "nothing
 * there".
 */
export const isMissing = (error: unknown): boolean => MISSING.has(errnoOf(error));

/** True if a file access failed for good, and not because the disk or the machine failed. */
export const isUnreadable = (error: unknown): boolean => UNREADABLE.has(errnoOf(error));

/** Null when there is nothing at the path. Throws on every other failure, so that a check of a path fails closed. */
export const unlessMissing = <T>(reading: Promise<T>): Promise<T | null> => unless(isMissing, reading);

/**
 * Null when the file cannot be read (missing, no permission, a directory, a loop of links). Throws when the disk fails or
 * the machine is short of descriptors or memory: the file may well be there then.
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
