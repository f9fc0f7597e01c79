import { Duplex } from 'node:stream';
import type { LocalEnd, OpenLocalEnd, StreamPort } from '../../../../lib/reach/host-streams.ts';

const HIGH_WATER_MARK = 64 * 1024;

/**
 * Turns Reach streams into connections of the Secure Link listener: each is passed to `accept`, which runs TLS inside it
 * (contract 08 §6.4). Nothing is dialled, so no address of this host has to be reachable from itself.
 */
export function acceptStreams(accept: (stream: Duplex) => void): OpenLocalEnd {
  return (port) => {
    const stream = new ReachStream(port);
    // The port works once this function has returned.
    queueMicrotask(() => {
      if (!stream.destroyed) accept(stream);
    });
    return stream.localEnd;
  };
}

/** A stream of a client behind the broker. It has no remote address. */
class ReachStream extends Duplex {
  readonly localEnd: LocalEnd = {
    write: (bytes) => this.push(bytes),
    end: () => void this.push(null),
    destroy: () => void this.destroy(),
  };
  readonly #port: StreamPort;

  constructor(port: StreamPort) {
    super({ allowHalfOpen: false, highWaterMark: HIGH_WATER_MARK });
    this.#port = port;
  }

  override _read(): void {
    this.#port.resume();
  }

  override _write(chunk: Uint8Array, _encoding: string, done: () => void): void {
    this.#port.send([chunk], done);
  }

  override _writev(chunks: { chunk: Uint8Array }[], done: () => void): void {
    this.#port.send(
      chunks.map(({ chunk }) => chunk),
      done,
    );
  }

  override _final(done: () => void): void {
    this.#port.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#port.end();
    done(error);
  }
}
