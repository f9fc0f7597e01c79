import { closeSync, fstatSync, openSync, renameSync, writeSync } from 'node:fs';

/** Bytes after which a new file is begun. */
export const MAX_LOG_FILE = 5 * 1024 * 1024;
/** Full files that stay, as `relay.log.1` to `relay.log.3`. */
export const OLD_LOG_FILES = 3;

/**
 * A log file that is rotated (contract 11 §1), mode 0600. A write that fails is lost: a full disk must not end the relay.
 * @throws Error when the file cannot be opened.
 */
export function openLogFile(path: string): { write(text: string): void } {
  let file = openSync(path, 'a', 0o600);
  let size = fstatSync(file).size;

  function rotate(): void {
    for (let at = OLD_LOG_FILES - 1; at >= 0; at--) {
      try {
        renameSync(at === 0 ? path : `${path}.${at}`, `${path}.${at + 1}`);
      } catch {
        // The file does not exist yet.
      }
    }
    const next = openSync(path, 'a', 0o600);
    closeSync(file);
    file = next;
    size = fstatSync(file).size;
  }

  return {
    write(text) {
      try {
        if (size >= MAX_LOG_FILE) rotate();
        size += writeSync(file, text);
      } catch {
        // There is nowhere to report this: the log itself has failed.
      }
    },
  };
}
