/** A body that writes itself to a Node stream. Needs no web stream in between, which would copy every chunk. */
export interface PipedBody {
  pipe(to: unknown): unknown;
  /** Called instead of `pipe` when the body is not sent. */
  destroy(): void;
}

/** Bytes of one media entry, opened once: every later call reads this file, whatever happens to its name. */
export interface OpenBytes {
  readonly size: number;
  /** Epoch milliseconds. */
  readonly modified: number;
  /** Changes with the size or the modification time; visible ASCII without quotes. */
  readonly tag: string;
  /** The first `length` bytes, or fewer at the end of the file. */
  head(length: number): Promise<Uint8Array>;
  /**
   * Bytes `start` to `end`, both included, as `WebResponse` takes them. It owns the file from now
   * on: read to its end or dropped, the file is closed. Breaks off with an error when the file became shorter.
   */
  body(start: number, end: number): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | PipedBody>;
  /** Closes the file, unless a body owns it. */
  close(): Promise<void>;
}

/** Why a file cannot be opened. `missing` also when it has moved since its path was resolved. */
export type OpenFailure = 'missing' | 'irregular' | 'unreadable';

/** The kind of a folder's entry; a link is not followed. */
export interface FolderItem {
  name: string;
  kind: 'file' | 'directory' | 'link' | 'other';
  size: number;
  /** Epoch milliseconds. */
  modified: number;
}

/** A file being written. Either `finish` or `discard` ends it. */
export interface NewBytes {
  /** May keep the bytes until a later call: they must not change. */
  write(bytes: Uint8Array): Promise<void>;
  /** Completes the file and returns its path. */
  finish(): Promise<string>;
  /** Closes and removes the file. Never rejects. */
  discard(): Promise<void>;
}

/** File operations for serving media, beyond `HostFiles`. */
export interface HostMedia {
  /** `TMPDIR`, or the default of the platform. */
  temporaryDirectory(): string;
  /** Working directory of the relay. */
  currentDirectory(): string;
  /** Home directories of the relay's user: from the environment and from the user database. Throws if that cannot be read. */
  userHomes(): string[];
  /** True if no file system of this platform distinguishes names by case. */
  readonly ignoresCase: boolean;
  /**
   * The path without links and dots. Components that do not exist, or that this account may not read, are kept by name,
   * and a loop of links is left unresolved. Rejects when the disk or the machine fails.
   */
  resolve(path: string): Promise<string>;
  /**
   * The state of directories, which differs once a name in one of them was added, removed or replaced, and the time of
   * the last such change (epoch milliseconds). A missing directory has a state too; rejects when one cannot be told.
   */
  directoryState(directories: readonly string[]): Promise<{ state: string; changed: number }>;
  /** True if two paths name one existing file. Rejects when that cannot be told. */
  isSame(path: string, other: string): Promise<boolean>;
  /**
   * Opens a regular file by a path without links. Follows no link, does not wait for a FIFO, and verifies that the opened
   * file is the one that the path names: after a swapped directory it is `missing`.
   */
  open(realPath: string): Promise<OpenBytes | OpenFailure>;
  /**
   * At most `limit` names of a directory by a path without links. Opened once and verified as `open` does; names that
   * vanish meanwhile are left out. `isCut`: there are more.
   */
  folder(realPath: string, limit: number): Promise<{ items: FolderItem[]; isCut: boolean } | OpenFailure>;
  /** The file or folder at a path without links; null when this account can see none. */
  facts(realPath: string): Promise<Omit<FolderItem, 'name'> | null>;
  /**
   * Creates a file that must not exist yet, with mode 0600. Throws with an errno. `isDurable` makes missing directories,
   * mode 0700, and syncs the file and its directory when it is finished.
   */
  create(path: string, options?: { isDurable?: boolean }): Promise<NewBytes>;
  /** Regular files of this user that are directly in a directory and begin with `prefix`. */
  ownFiles(directory: string, prefix: string): Promise<{ path: string; modified: number }[]>;
}
