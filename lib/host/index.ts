import type { HomeFiles } from './home-files.ts';
import type { HostMedia } from './media.ts';

/**
 * What only a host machine can do. The relay's domains see these interfaces; `lib/host/node/` has the one
 * implementation. At the edge there is no `Host`, and what needs one answers `unavailable on this relay`.
 */
export interface Host {
  /** Absolute path of the agent home. */
  readonly agentHome: string;
  readonly files: HostFiles;
  readonly media: HostMedia;
  readonly homeFiles: HomeFiles;
  readonly network: HostNetwork;
  readonly processes: HostProcesses;
  /** The relay's own environment, from which children get theirs. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly children: HostChildren;
  readonly databases: HostDatabases;
  /** Absent where no pseudo-terminal can be had; the relay works on without. */
  readonly terminals?: HostTerminals;
}

/** What to start: a program and its arguments, never a shell string. */
export interface Command {
  /** Absolute path, or a name looked up on `PATH`. */
  file: string;
  args: string[];
  env: Record<string, string>;
  cwd: string;
}

export type Signal = 'SIGHUP' | 'SIGINT' | 'SIGTERM' | 'SIGKILL';

/** How a child ended: one of the two is set. */
export interface Exit {
  code: number | null;
  signal: string | null;
}

export interface HostChildren {
  /** The absolute path of an executable, by path or on `PATH`; null when there is none. */
  find(file: string): Promise<string | null>;
  /** Runs a short command to its end: at most `timeout` ms and 1 MiB of output. Never throws; `code` null = did not run. */
  run(command: Command, timeout: number): Promise<{ code: number | null; stdout: string }>;
  /** Starts a child with three pipes in a process group of its own. Rejects with the reason when it cannot start. */
  spawn(command: Command): Promise<Child>;
}

export interface Child {
  readonly pid: number;
  /** Bytes of stdout. Reading pauses with `pause()`. */
  onStdout(listener: (bytes: Uint8Array) => void): void;
  onStderr(listener: (bytes: Uint8Array) => void): void;
  /**
   * After the process has ended and all of its output was delivered. What it leaves behind in its group gets SIGTERM
   * and, 2 s later, SIGKILL; that is waited for. Called once.
   */
  onExit(listener: (exit: Exit) => void): void;
  pause(): void;
  resume(): void;
  /** Queues bytes for stdin. `lost` is called when they could not be written: the pipe is closed, or the process gone. */
  write(bytes: Uint8Array, lost: () => void): void;
  /** Bytes that wait for stdin. */
  unwritten(): number;
  closeStdin(): void;
  /** Signals the whole process group. Nothing happens when it is gone. */
  kill(signal: Signal): void;
}

export interface HostTerminals {
  /** Starts a program as leader of a new session on a new pseudo-terminal. Throws when it cannot; nothing stays open then. */
  open(command: Command, size: { cols: number; rows: number }): Terminal;
}

export interface Terminal {
  readonly pid: number;
  /** Reading begins with the listener. The bytes are only good during the call. */
  onOutput(listener: (bytes: Uint8Array) => void): void;
  /** After the program has ended and all of its output was delivered. Called once. */
  onExit(listener: (exit: Exit) => void): void;
  /** Stops reading: the program blocks when the kernel's buffer is full. */
  pause(): void;
  resume(): void;
  /** Queues bytes; every one reaches the program, in order, as it reads them. */
  write(bytes: Uint8Array): void;
  /** Bytes that wait to be written. */
  unwritten(): number;
  /** Writing has failed for good while the program still runs. Called once. */
  onWriteFailed(listener: () => void): void;
  resize(size: { cols: number; rows: number }): void;
  /** Signals the foreground program's process group and the leader's. */
  kill(signal: Signal): void;
  /** Frees the descriptor. The program gets SIGHUP from the kernel. */
  close(): void;
}

export interface DirectoryEntry {
  name: string;
  kind: 'file' | 'directory' | 'link' | 'other';
}

export interface FileFacts {
  kind: 'file' | 'directory' | 'other';
  size: number;
  /** Epoch milliseconds. */
  modified: number;
  /** Permission bits, such as 0o600. */
  mode: number;
}

/** Asynchronous file access. A missing file is `null`, never an error; every other failure throws with its errno as `code`. */
export interface HostFiles {
  /** Whole file, or its first `limit` bytes. */
  read(path: string, limit?: number): Promise<Uint8Array | null>;
  /** As `read`, decoded as UTF-8 (invalid bytes become U+FFFD). */
  readText(path: string, limit?: number): Promise<string | null>;
  /** The last `bytes` bytes of a file, decoded as UTF-8. */
  readTail(path: string, bytes: number): Promise<string | null>;
  /** Follows links. */
  stat(path: string): Promise<FileFacts | null>;
  list(directory: string): Promise<DirectoryEntry[] | null>;
  realPath(path: string): Promise<string | null>;
  /** Temporary sibling, fsync, rename, fsync of the directory. Directories are made with mode 0700. */
  writeAtomic(path: string, bytes: Uint8Array, mode: number): Promise<void>;
  /** Fails with `EEXIST` when the path exists; durable before it returns. */
  createExclusive(path: string, bytes: Uint8Array, mode: number): Promise<void>;
  remove(path: string): Promise<void>;
  /** Calls back, debounced, after something below one of the paths may have changed. Returns its end. */
  watch(paths: string[], changed: () => void): () => void;
}

/** A query on a SQLite file of another program. */
export interface DatabaseQuery {
  /** Absolute path. */
  path: string;
  /** One statement that returns rows. */
  sql: string;
  params: (string | number)[];
}

export type DatabaseRow = Record<string, string | number | bigint | Uint8Array | null>;

export interface HostDatabases {
  /**
   * The rows of a query (at most 5,000), with those that are only in the write-ahead log. Nothing is created, migrated
   * or written, and no lock is held that would keep the database's owner from working. Never rejects: null when there
   * is nothing to be had within 2.5 s, be it missing, locked (for 500 ms), corrupt, or of another schema.
   */
  read(query: DatabaseQuery): Promise<DatabaseRow[] | null>;
  /** Ends what is under way. A later `read` works again. */
  close(): void;
}

export interface HostNetwork {
  /** The address other machines of this network use for this host, or null when there is none. */
  lanAddress(): Promise<string | null>;
  /** What the tailnet CLI reports, or null without one. */
  tailnet(): Promise<Tailnet | null>;
  /** Whether a TCP connection succeeds within `timeout` milliseconds. */
  canConnect(host: string, port: number, timeout: number): Promise<boolean>;
}

export interface Tailnet {
  /** The 100.x address. */
  address: string | null;
  /** The `.ts.net` name, without a final dot. */
  name: string | null;
  /** Local ports that the tailnet serves over TLS. */
  servedPorts: number[];
  /** Local ports that a funnel publishes. */
  funnelPorts: number[];
}

export interface HostProcesses {
  /** This very process. */
  readonly own: number;
  /** Whether a process exists (signal 0; one that belongs to somebody else counts). */
  exists(pid: number): boolean;
  /** Facts from `/proc`, or null where there is none or the process is gone. */
  facts(pid: number): Promise<{ startTime: number; command: string } | null>;
}
