/** Codes of a machine short of resources: the file may well exist, so a scan must not treat it as absent. */
const SHORTAGES = new Set(['EMFILE', 'ENFILE', 'ENOMEM']);

/** Null when the file cannot be read (no permission, a directory, a loop of links). Throws on a shortage. */
export async function unlessUnreadable<T>(reading: Promise<T>): Promise<T | null> {
  try {
    return await reading;
  } catch (error) {
    if (SHORTAGES.has(errnoOf(error))) throw error;
    return null;
  }
}

/** The errno of a failed file access, or `''`. */
export const errnoOf = (error: unknown): string => {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' ? code : '';
};
