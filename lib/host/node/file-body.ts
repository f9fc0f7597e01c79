import { read } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import type { PipedBody } from '../media.ts';

const CHUNK = 256 * 1024;

/**
 * A span of an open file, sent from its descriptor as fast as it is consumed; closes the file at its end. Not a
 * `Readable`: two buffers alternate, one being filled while the other is sent. A fresh buffer per chunk produced
 * garbage faster than it was collected, which cost more than the sending (Node 20).
 */
export class FileBody implements PipedBody {
  readonly #file: FileHandle;
  #position: number;
  #left: number;
  #over = false;

  /** Bytes `start` to `end`, both included. */
  constructor(file: FileHandle, start: number, end: number) {
    this.#file = file;
    this.#position = start;
    this.#left = end - start + 1;
  }

  /**
   * Sends everything and ends `to`, or destroys it on failure. A file that turns out shorter counts as a failure, since
   * its length was announced. A chunk is valid until `to` has called back.
   */
  pipe(to: Writable): Writable {
    this.#send(to).then(
      () => to.end(),
      (error) => to.destroy(error),
    );
    return to;
  }

  /** Closes the file of a body that is not sent. */
  destroy(): void {
    void this.#close();
  }

  async #send(to: Writable): Promise<void> {
    const closed = new Promise<never>((_, reject) => to.once('close', () => reject(new Error('the client hung up'))));
    closed.catch(() => {});
    let [filling, sending] = [Buffer.allocUnsafeSlow(CHUNK), Buffer.allocUnsafeSlow(CHUNK)];
    let sent: Promise<void> = Promise.resolve();
    try {
      while (this.#left > 0) {
        const count = await this.#read(filling);
        await Promise.race([sent, closed]);
        [filling, sending] = [sending, filling];
        const chunk = sending.subarray(0, count);
        sent = new Promise((resolve, reject) => to.write(chunk, (error) => (error ? reject(error) : resolve())));
        sent.catch(() => {});
      }
      await Promise.race([sent, closed]);
    } finally {
      await this.#close();
    }
  }

  #read(buffer: Buffer): Promise<number> {
    return new Promise((resolve, reject) => {
      read(this.#file.fd, buffer, 0, Math.min(CHUNK, this.#left), this.#position, (error, count) => {
        if (error) return reject(error);
        if (count === 0) return reject(new Error('the file became shorter while it was sent'));
        this.#position += count;
        this.#left -= count;
        resolve(count);
      });
    });
  }

  async #close(): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    await this.#file.close();
  }
}
