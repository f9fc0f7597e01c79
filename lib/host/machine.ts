/** Descriptors with which the relay starts and serves a few devices. */
export const MIN_DESCRIPTORS = 64;

/** Resource limits of a process. */
export interface HostMachine {
  /** Version of the runtime, such as `20.19.0`. */
  readonly runtimeVersion: string;
  /** Bytes on the file system of a path, or of its nearest parent that exists, for this user. Rejects when unknown. */
  space(path: string): Promise<{ free: number; total: number }>;
  /** True if the file system of a path, or of its nearest existing parent, is read-only; false when unknown. */
  isReadOnly(path: string): Promise<boolean>;
  /** Files that a process may have open, and how many it has; null when the system does not tell this user. */
  descriptors(pid: number): Promise<{ limit: number; open: number } | null>;
}
