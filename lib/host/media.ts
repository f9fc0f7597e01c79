/** A body that writes itself to a Node stream, without a web stream in between, which would copy every chunk. */
export interface PipedBody {
  pipe(to: unknown): unknown;
  /** Called instead of `pipe` when the body is not sent. */
  destroy(): void;
}

/** Bytes of one media entry, opened once: every later call reads this file, even if its name moves. */
export interface OpenBytes {
  readonly size: number;
  /** Epoch milliseconds. */
  readonly modified: number;
  /** Changes with the size or the modification time; visible ASCII without quotes. */
  readonly tag: string;
  /** The first `length` bytes, or fewer at the end of the file. */
  head(length: number): Promise<Uint8Array>;
  /**
   * Bytes `start` to `end`, both included, as `WebResponse` takes them. The body owns the file from now on, and closes
   * it when read to its end or dropped. Breaks off with an error if the file became shorter.
   */
  body(start: number, end: number): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | PipedBody>;
  /** Closes the file, unless a body owns it. */
  close(): Promise<void>;
}

/** Why a file cannot be opened. `missing` also if it has moved since its path was resolved. */
export type OpenFailure = 'missing' | 'irregular' | 'unreadable';

/** The kind of an entry in a folder; a link is not followed. */
export interface FolderItem {
  name: string;
  kind: 'file' | 'directory' | 'link' | 'other';
  size: number;
  /** Epoch milliseconds. */
  modified: number;
}

/** A file being written, until `finish` or `discard`. */
export interface NewBytes {
  /** May keep the bytes until a later call, so they must not change. */
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
  /** True if no file system of this platform is case-sensitive. */
  readonly ignoresCase: boolean;
  /**
   * The path without links and dots. Components that do not exist or that this account may not read stay as they are,
   * and so does a loop of links. Rejects when the disk or the machine fails.
   */
  resolve(path: string): Promise<string>;
  /**
   * A state that changes whenever a name in one of the directories is added, removed or replaced, and the time of the
   * last change (epoch milliseconds). A missing directory has a state too. Rejects if one cannot be determined.
   */
  directoryState(directories: readonly string[]): Promise<{ state: string; changed: number }>;
  /** True if two paths name the same existing file. Rejects if that cannot be determined. */
  isSame(path: string, other: string): Promise<boolean>;
  /**
   * Opens a regular file by a path without links. Follows no link, does not wait for a FIFO, and verifies that the
   * opened file is the one that the path names: if a directory was swapped, it is `missing`. Rejects when the disk or the
   * machine fails.
   */
  open(realPath: string): Promise<OpenBytes | OpenFailure>;
  /**
   * At most `limit` names of a directory by a path without links. Opened once and verified like `open`; names that
   * vanish meanwhile are omitted. `isCut` is true if there are more.
   */
  folder(realPath: string, limit: number): Promise<{ items: FolderItem[]; isCut: boolean } | OpenFailure>;
  /** The file or folder at a path without links; null if this account cannot see one. */
  facts(realPath: string): Promise<Omit<FolderItem, 'name'> | null>;
  /**
   * Creates a file, which must not exist yet, with mode 0600. Throws with an errno. `isDurable` creates missing
   * directories with mode 0700, and syncs the file and its directory when it is finished.
   */
  create(path: string, options?: { isDurable?: boolean }): Promise<NewBytes>;
  /** Regular files of this user that are directly in a directory and begin with `prefix`. */
  ownFiles(directory: string, prefix: string): Promise<{ path: string; modified: number }[]>;
}
