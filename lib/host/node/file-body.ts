import { read } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';

/** Larger than Node's own 64 KiB: a loopback download is bound by the number of reads. */
const CHUNK = 256 * 1024;

/** A span of an open file, read from its descriptor as fast as it is taken. Closes the file at its end. */
export class FileBody extends Readable {
  readonly #file: FileHandle;
  #position: number;
  #left: number;
  #reading = false;
  #afterRead: (() => void) | undefined;

  /** Bytes `start` to `end`, both included. */
  constructor(file: FileHandle, start: number, end: number) {
    super({ highWaterMark: CHUNK });
    this.#file = file;
    this.#position = start;
    this.#left = end - start + 1;
  }

  override _read(): void {
    if (this.#left === 0) {
      this.push(null);
      return;
    }
    const buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK, this.#left));
    this.#reading = true;
    read(this.#file.fd, buffer, 0, buffer.length, this.#position, (error, count) => {
      this.#reading = false;
      if (this.#afterRead) return this.#afterRead();
      if (error) return this.destroy(error);
      // The length was promised: the connection must break rather than wait for bytes that will never come.
      if (count === 0) return this.destroy(new Error('the file became shorter while it was sent'));
      this.#position += count;
      this.#left -= count;
      this.push(count === buffer.length ? buffer : buffer.subarray(0, count));
    });
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const close = () => {
      this.#file.close().then(
        () => done(error),
        (failure) => done(error ?? failure),
      );
    };
    // A descriptor that is closed under a running read may be another file's by then.
    if (this.#reading) this.#afterRead = close;
    else close();
  }
}
