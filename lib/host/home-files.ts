/**
 * Files of a directory (`home`) whose content is not trusted: a link in it may lead anywhere, and a name may be swapped
 * between two looks. Each path is judged by what was really opened. Failures throw with their errno as `code`; what is
 * there and is no regular file is `EISDIR` or `EINVAL`.
 */
export interface HomeFiles {
  /** Reads a file; `missing` also for a link that leads nowhere, `outside` when it really lies beyond `home`. */
  read(home: string, path: string, limits: ReadLimits): Promise<HomeFile | 'missing' | 'outside'>;
  /**
   * Replaces a file, or makes it, and its directory when that is the only one that is missing. After a crash at any
   * moment the file is the old one or the new one. Writes to one file wait for each other, and `mayReplace` is asked
   * right before the change, with nobody of this process in between. A link within `home` stays one: its target is
   * replaced. Returns the SHA-256 (hex) of what is there now. A file keeps its mode, a new one gets 0644 less the umask.
   */
  write(
    home: string,
    path: string,
    bytes: Uint8Array,
    mayReplace: MayReplace,
  ): Promise<Written | 'outside' | 'refused'>;
  /** Removes what writes that were killed have left in a directory. Never throws. */
  sweep(directory: string): Promise<void>;
}

export interface ReadLimits {
  /** Bytes to return, from the beginning. */
  keep: number;
  /** The largest file to compute a digest of. */
  digest: number;
}

export interface HomeFile {
  /** The first bytes. */
  bytes: Uint8Array;
  /** Of the whole file. */
  size: number;
  /** SHA-256 of the whole file in hex; null when it is too large for one. */
  sha256: string | null;
}

export interface Written {
  sha256: string;
}

/** Gets the present file, or null when there is none. Its digest is null when the file is too large for one. */
export type MayReplace = (present: { sha256: string | null } | null) => boolean;
