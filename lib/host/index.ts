/**
 * What only a host machine can do. The relay's domains see these interfaces; `lib/host/node/` has the one
 * implementation. At the edge there is no `Host`, and what needs one answers `unavailable on this relay`.
 */
export interface Host {
  /** Absolute path of the agent home. */
  readonly agentHome: string;
  readonly files: HostFiles;
  readonly network: HostNetwork;
  readonly processes: HostProcesses;
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
  /** Whether a process exists (signal 0; one that belongs to somebody else counts). */
  exists(pid: number): boolean;
  /** Facts from `/proc`, or null where there is none or the process is gone. */
  facts(pid: number): Promise<{ startTime: number; command: string } | null>;
}
