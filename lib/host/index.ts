import type { EditedText, ParsedMapping, YamlChange } from '../kit/yaml.ts';
import type { HomeFiles } from './home-files.ts';
import type { HostIdentities } from './identity.ts';
import type { HostMachine } from './machine.ts';
import type { HostMedia } from './media.ts';
import type { HostUsers } from './users.ts';

/**
 * The abilities of a host machine. The relay's domains see these interfaces; `lib/host/node/` implements them. At the edge
 * there is no `Host`, and domains that need one are unavailable.
 */
export interface Host {
  /** Absolute path of the agent home. */
  readonly agentHome: string;
  readonly files: HostFiles;
  readonly media: HostMedia;
  readonly homeFiles: HomeFiles;
  readonly machine: HostMachine;
  readonly network: HostNetwork;
  readonly identities: HostIdentities;
  readonly processes: HostProcesses;
  readonly users: HostUsers;
  /** The relay's own environment, from which those of child processes derive. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly children: HostChildren;
  readonly databases: HostDatabases;
  readonly yaml: HostYaml;
  /** Absent on hosts without pseudo-terminals. */
  readonly terminals?: HostTerminals;
}

/** A program to start, with its arguments; never a shell string. */
export interface Command {
  /** Absolute path, or a name looked up on `PATH`. */
  file: string;
  args: string[];
  env: Record<string, string>;
  cwd: string;
}

export type Signal = 'SIGHUP' | 'SIGINT' | 'SIGTERM' | 'SIGKILL';

/** The exit of a child. Exactly one member is set. */
export interface Exit {
  code: number | null;
  signal: string | null;
}

export interface HostChildren {
  /** Absolute path of an executable, by path or on `PATH`; null if it does not exist. Rejects when the disk fails. */
  find(file: string): Promise<string | null>;
  /** Runs a short command, for at most `timeout` ms and 1 MiB of output. Never throws; `code` is null if it did not run. */
  run(command: Command, timeout: number): Promise<{ code: number | null; stdout: string; stderr: string }>;
  /** Starts a child with three pipes in a process group of its own. Rejects when it cannot start. */
  spawn(command: Command): Promise<Child>;
}

export interface Child {
  readonly pid: number;
  /** Output of the child; `pause()` stops the reading. */
  onStdout(listener: (bytes: Uint8Array) => void): void;
  onStderr(listener: (bytes: Uint8Array) => void): void;
  /**
   * Called once, after the process has exited, all of its output was delivered, and the rest of its process group has
   * ended, which gets SIGTERM, then SIGKILL after 2 s.
   */
  onExit(listener: (exit: Exit) => void): void;
  pause(): void;
  resume(): void;
  /** Queues bytes for stdin. `lost` is called when they cannot be written because the pipe or the process is gone. */
  write(bytes: Uint8Array, lost: () => void): void;
  /** Bytes waiting for stdin, with 256 for each write: many short ones take more memory than their bytes. */
  unwritten(): number;
  closeStdin(): void;
  /** Signals the whole process group. No effect once it is gone. */
  kill(signal: Signal): void;
}

export interface HostTerminals {
  /**
   * Starts a program as leader of a new session on a new pseudo-terminal. Throws on failure, without leaking
   * descriptors.
   */
  open(command: Command, size: { cols: number; rows: number }): Terminal;
}

export interface Terminal {
  readonly pid: number;
  /** Starts reading. The bytes are valid during the call only. */
  onOutput(listener: (bytes: Uint8Array) => void): void;
  /**
   * Called once, after the program has exited and all of its output was delivered, with the exit code as a shell reports
   * it: 128 plus the signal number for a killed program.
   */
  onExit(listener: (exitCode: number) => void): void;
  /** Stops reading, so that the program blocks once the kernel's buffer is full. */
  pause(): void;
  resume(): void;
  /** Queues bytes; all reach the program, in order. */
  write(bytes: Uint8Array): void;
  /** Bytes waiting to be written. */
  unwritten(): number;
  /** Called once, if writing fails permanently while the program still runs. */
  onWriteFailed(listener: () => void): void;
  resize(size: { cols: number; rows: number }): void;
  /** Signals the foreground program's process group and the leader's. */
  kill(signal: Signal): void;
  /** Closes the descriptor. The kernel sends SIGHUP to the program. */
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

/** Asynchronous file access. A missing file is `null`, not an error; any other failure throws with its errno as `code`. */
export interface HostFiles {
  /** The whole file, or its first `limit` bytes. */
  read(path: string, limit?: number): Promise<Uint8Array | null>;
  /** Like `read`, decoded as UTF-8; invalid bytes become U+FFFD. */
  readText(path: string, limit?: number): Promise<string | null>;
  /** The last `bytes` bytes of a file, decoded as UTF-8. */
  readTail(path: string, bytes: number): Promise<string | null>;
  /** Follows links. */
  stat(path: string): Promise<FileFacts | null>;
  list(directory: string): Promise<DirectoryEntry[] | null>;
  realPath(path: string): Promise<string | null>;
  /** Writes a temporary sibling, syncs, renames, syncs the directory. Creates missing directories with mode 0700. */
  writeAtomic(path: string, bytes: Uint8Array, mode: number): Promise<void>;
  /** Fails with `EEXIST` when the path exists. Durable before it resolves. */
  createExclusive(path: string, bytes: Uint8Array, mode: number): Promise<void>;
  /**
   * Appends to a file, or creates it with mode 0600, and missing directories with mode 0700. Follows no link at `path`.
   * Not synced: the system decides when it is durable.
   */
  append(path: string, bytes: Uint8Array): Promise<void>;
  /** Overwrites the beginning of an existing file. */
  overwriteStart(path: string, bytes: Uint8Array): Promise<void>;
  remove(path: string): Promise<void>;
  /**
   * Removes the permission bits of a file or directory that are not in `mode`. Returns whether any were set; null if it
   * does not exist.
   */
  tighten(path: string, mode: number): Promise<boolean | null>;
  /** True if this process may write to a file, or create files in a directory. */
  isWritable(path: string): Promise<boolean>;
  /** The bytes of a regular file, read on demand. Leaving the loop closes the file. A missing file throws `ENOENT`. */
  chunks(path: string): AsyncIterable<Uint8Array>;
  /** Creates a directory, mode 0700, whose path is `prefix` and some random letters. Returns the path. */
  createDirectory(prefix: string): Promise<string>;
  /** Removes a file, a link or a directory with everything in it. */
  removeAll(path: string): Promise<void>;
  /** Calls back, debounced, when something below one of the paths may have changed. Returns the stop function. */
  watch(paths: string[], changed: () => void): () => void;
}

/** A query on another program's SQLite file. */
export interface DatabaseQuery {
  /** Absolute path. */
  path: string;
  /** One statement that returns rows. */
  sql: string;
  params: (string | number)[];
}

export type DatabaseRow = Record<string, string | number | bigint | Uint8Array | null>;

/**
 * The rows of a query, or why there are none. `absent`: the file, or a table or column in the query, does not exist.
 * `unreadable`: the file is locked (for 500 ms) or corrupt, or gave no result within 2.5 s.
 */
export type DatabaseResult =
  | {
      rows: DatabaseRow[];
      /** True if there are more rows than the limits allow. */
      isCut: boolean;
    }
  | { rows: null; problem: 'absent' | 'unreadable' };

export interface HostDatabases {
  /**
   * Runs a query, for at most 5,000 rows and about 4 MiB of texts and blobs. The rows include those that are only in
   * the write-ahead log. Creates, migrates and writes nothing, and takes no lock that would block the owner of the
   * database. Never rejects.
   */
  read(query: DatabaseQuery): Promise<DatabaseResult>;
  /** Ends running queries. A later `read` works again. */
  close(): void;
}

/**
 * Parses YAML files of other programs, away from the thread that serves clients, so that no text can block that thread.
 * Never rejects; a text over a bound, or one that takes 10 s, is a `problem`, which quotes nothing of it.
 */
export interface HostYaml {
  parseMapping(text: string): Promise<ParsedMapping>;
  /** Changes values in place; comments, key order and everything else stay. */
  edit(text: string, changes: YamlChange[]): Promise<EditedText>;
  /** Ends pending calls. A later call works again. */
  close(): void;
}

export interface HostNetwork {
  /** Address of this host in its network, or null without one. */
  lanAddress(): Promise<string | null>;
  /** State of the tailnet, from its CLI; null without one. */
  tailnet(): Promise<Tailnet | null>;
  /** True if a TCP connection succeeds within `timeout` milliseconds. */
  canConnect(host: string, port: number, timeout: number): Promise<boolean>;
  /** IP addresses of this machine's interfaces, including loopback, without zones. */
  addresses(): string[];
  /**
   * IP addresses of a host name, at most 16, or the address itself; empty for a name without addresses. Rejects when
   * the system gives no answer: after `timeout` ms, or without a name server or free descriptors.
   */
  resolve(host: string, timeout: number): Promise<string[]>;
  /** True if an IP address and port can be bound: listens and closes at once, without accepting a connection. */
  canListen(address: string, port: number): Promise<boolean>;
}

export interface Tailnet {
  /** The 100.x address. */
  address: string | null;
  /** The `.ts.net` name, without a final dot. */
  name: string | null;
  /** Local ports served to the tailnet over TLS. */
  servedPorts: number[];
  /** Local ports published by a funnel. */
  funnelPorts: number[];
}

export interface HostProcesses {
  /** Id of this process. */
  readonly own: number;
  /** True if a process exists, even one of another user (signal 0). */
  exists(pid: number): boolean;
  /** Facts from `/proc`; null without it, or when the process is gone. */
  facts(pid: number): Promise<{ startTime: number; command: string } | null>;
  /**
   * Ends processes and everything that they started: SIGHUP and SIGTERM, then SIGKILL after a second. Resolves within
   * three seconds and never rejects. Without `/proc` it has no effect. If `/proc` cannot be read, it ends the groups of
   * the leaders, and counts them as left.
   */
  endAll(origin: ProcessOrigin): Promise<{ ended: number; left: number }>;
}

/** Identifies processes by their origin: descendants of one of these, and members of its session, belong to it too. */
export interface ProcessOrigin {
  /** Session leaders. */
  leaders: readonly number[];
  /** `NAME=value` in the environment of their programs, which recognizes daemons that have left session and parent. */
  marks: readonly string[];
}
