/** Descriptors that the relay needs to start and to serve a few devices. */
export const MIN_DESCRIPTORS = 64;

/** Resource limits of a process. */
export interface HostMachine {
  /** Version of the runtime, such as `20.19.0`. */
  readonly runtimeVersion: string;
  /**
   * Free and total bytes for this user on the file system of a path, or of its nearest existing parent. Rejects when
   * unknown.
   */
  space(path: string): Promise<{ free: number; total: number }>;
  /** True if the file system of a path, or of its nearest existing parent, is read-only; false when unknown. */
  isReadOnly(path: string): Promise<boolean>;
  /** Limit and number of the open files of a process; null if the system does not tell this user. */
  descriptors(pid: number): Promise<{ limit: number; open: number } | null>;
}
