/**
 * Files below a directory (`home`) whose content is not trusted: a link may lead anywhere, and a name may be swapped
 * between two accesses. Checks apply to the opened file, not to its path. Failures throw with their errno as `code`:
 * `EISDIR` or `EINVAL` for anything but a regular file.
 */
export interface HomeFiles {
  /** Reads a file; `missing` also for a dangling link, `outside` when its real path is not below `home`. */
  read(home: string, path: string, limits: ReadLimits): Promise<HomeFile | 'missing' | 'outside'>;
  /**
   * Replaces or creates a file, and its directory if the parent of that exists. A crash leaves either the old file or
   * the new one. Writes to one file are serialized, and `mayReplace` is called right before the change, with no other
   * write of this process in between. For a link within `home`, the target is replaced. Returns the SHA-256 (hex) of
   * the new content. An existing file keeps its mode, a new one gets 0600.
   */
  write(
    home: string,
    path: string,
    bytes: Uint8Array,
    mayReplace: MayReplace,
  ): Promise<Written | 'outside' | 'refused'>;
  /** Removes temporary files of killed writes from a directory. Never throws. */
  sweep(directory: string): Promise<void>;
}

export interface ReadLimits {
  /** Leading bytes to return. */
  content: number;
  /** Largest file to hash, in bytes. */
  digest: number;
}

export interface HomeFile {
  /** The first bytes. */
  bytes: Uint8Array;
  /** Bytes of the whole file. */
  size: number;
  /** SHA-256 (hex) of the whole file; null if it is too large. */
  sha256: string | null;
}

export interface Written {
  sha256: string;
}

/** Decides from the present file, or null without one. Its digest is null if the file is too large. */
export type MayReplace = (present: { sha256: string | null } | null) => boolean;
