/** A body that writes itself to a Node stream. Needs no web stream in between, which would copy every chunk. */
export interface PipedBody {
  pipe(to: unknown): unknown;
  /** Called instead of `pipe` when the body is not sent. */
  destroy(): void;
}

/** Bytes of one media entry, opened once: everything that follows is about this very file, whatever its name does. */
export interface OpenBytes {
  readonly size: number;
  /** Epoch milliseconds. */
  readonly modified: number;
  /** Changes whenever size or time of change do; visible ASCII without quotes. */
  readonly tag: string;
  /** The first `length` bytes, or what there is. */
  head(length: number): Promise<Uint8Array>;
  /**
   * Bytes `start` to `end`, both included, as `WebResponse` takes them. It owns the file from now
   * on: read to its end or dropped, the file is closed. Breaks off with an error when the file became shorter.
   */
  body(start: number, end: number): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | PipedBody>;
  /** Closes the file unless a body has it. */
  close(): Promise<void>;
}

/** Why a file cannot be opened. `missing` also when it is no longer where it was when its path was looked at. */
export type OpenFailure = 'missing' | 'irregular' | 'unreadable';

/** A file that is being written. One of `finish` and `discard` ends it. */
export interface NewBytes {
  write(bytes: Uint8Array): Promise<void>;
  /** Completes it and tells where it is. */
  finish(): Promise<string>;
  /** Closes and removes it. Never fails. */
  discard(): Promise<void>;
}

/** What serving files of a host needs beyond `HostFiles`. */
export interface HostMedia {
  /** As the environment names it. */
  temporaryDirectory(): string;
  /** Where the relay was started. */
  currentDirectory(): string;
  /** Homes of the user that the relay runs as: of the environment, and of the system's own records. */
  userHomes(): string[];
  /** Whether file names differ by more than case nowhere on this platform. */
  readonly ignoresCase: boolean;
  /**
   * The path without links and dots. What does not exist, or cannot be seen, is taken by its name. Never fails: of
   * links in a circle one is left.
   */
  resolve(path: string): Promise<string>;
  /** Whether two paths name one existing file. */
  isSame(path: string, other: string): Promise<boolean>;
  /**
   * Opens a regular file by a path without links, never following one, never waiting (FIFO), and makes sure that what
   * was opened is what this path names: a swapped directory makes it `missing`.
   */
  open(realPath: string): Promise<OpenBytes | OpenFailure>;
  /** Makes a file that must not exist yet, mode 0600. Throws with an errno. */
  create(path: string): Promise<NewBytes>;
  /** Regular files of this user directly in a directory whose names begin with `prefix`. */
  ownFiles(directory: string, prefix: string): Promise<{ path: string; modified: number }[]>;
}
