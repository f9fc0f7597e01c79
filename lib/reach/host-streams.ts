import { concatBytes } from '../kit/bytes.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { closeFrame, dataHeader, type Frame, MAX_PAYLOAD, windowFrame } from './frames.ts';

/** Streams of one host (contract 08 §6.4). */
export const STREAM_LIMIT = 16;
/** Bytes of payload in one message to a client: phones hold 32 messages or 8 MiB, whichever is less. */
const MAX_RECORD = 64 * 1024;
/** Chunks of one message above which joining them costs less than to send each. */
const MAX_PARTS = 16;
/** Bytes that may be queued in one stream for the local end. */
const MAX_QUEUED_FRAMES = 32;
const MAX_QUEUED_BYTES = 8 * MAX_PAYLOAD;
/** Bytes of a stream that wait to be sent, above which its local end waits. */
const MAX_UNSENT = 128 * 1024;
/** Bytes handed to the socket but not sent yet, above which only control messages are. */
const MAX_IN_FLIGHT = 512 * 1024;
/** Milliseconds for which a full stream may keep the socket from being read. */
const MAX_PAUSE = 10_000;
/** Milliseconds without DATA in either direction after which a stream is closed. */
const IDLE = 300_000;
/** Milliseconds in which the local end must read the queue of a stream that its client has closed. */
const DRAIN = 10_000;
/** Ids of unknown streams that are remembered, so that each is answered once. */
const MAX_ANSWERED = 256;
/** Bytes that the broker may send in a stream before the local end has read any of them (contract 08 §7.6). */
export const WINDOW = 256 * 1024;
/**
 * The same once the local end has read half of that. A grant costs home and broker about as much as 64 KiB of payload, and on
 * a path with a long round trip more bytes have to be under way.
 */
const BULK_WINDOW = 1024 * 1024;

/** The local end of a stream: the Secure Link listener. */
export interface LocalEnd {
  /** Takes bytes of the client. False if it accepts no more until it calls `StreamPort.resume`. */
  write(bytes: Uint8Array): boolean;
  /** The client has closed the stream, and all of its bytes were written. */
  end(): void;
  /** The stream is gone: no more reads or writes. */
  destroy(): void;
}

/** Operations of the local end on its stream. */
export interface StreamPort {
  /** Queues bytes for the client. `done` is called when more may follow, or once when the stream is gone. */
  send(chunks: readonly Uint8Array[], done: () => void): void;
  /** The local end accepts bytes again. */
  resume(): void;
  /** The local end has ended: the queue is sent, then the stream is closed. */
  end(): void;
}

/** Makes the local end of a new stream. It uses the port once this has returned. */
export type OpenLocalEnd = (port: StreamPort) => LocalEnd;

/** The socket below the streams. */
export interface FrameSocket {
  /** Sends a binary message: a short head, then parts. `sent` is called once it has left the process, or never can. */
  sendBytes(head: Uint8Array, parts: readonly Uint8Array[], sent: () => void): void;
  pause(): void;
  resume(): void;
}

export interface HostStreamsDeps {
  socket: FrameSocket;
  open: OpenLocalEnd;
  clock: Clock;
  /** Bytes that may be sent in a stream before the client's side grants more; absent without flow control. */
  window?: number;
  /** A stream is over. */
  completed(): void;
}

/** `draining`: closed by the client, and the local end has yet to take its last bytes. */
type StreamState = 'open' | 'draining' | 'over';

interface Stream {
  readonly id: string;
  /** Of each of its DATA frames. */
  readonly header: Uint8Array;
  readonly local: LocalEnd;
  state: StreamState;
  /** From the client. */
  inbound: Uint8Array[];
  inboundBytes: number;
  /** True if the local end accepts more. */
  isAccepted: boolean;
  /** Bytes that it read and that were not granted again. */
  consumed: number;
  /** Bytes that the broker may send before it has read any of them. */
  window: number;
  /** To the client. */
  outbound: Uint8Array[];
  outboundBytes: number;
  credit: number;
  /** Called when more may be sent. */
  done: (() => void) | undefined;
  /** The local end has ended. */
  ended: boolean;
  /** Monotonic time of the last DATA. */
  activeAt: number;
  cancelTimer: Cancel;
}

/**
 * The streams of one connection to the broker: opaque bytes between clients and the local listener (contract 08 §6.4, 7.6).
 * Every queue is bounded. A client that sends faster than the local end reads stops the reading of the socket for ten
 * seconds, then loses its stream. The local end has to wait until the socket and the client's credit have room. Streams take
 * turns, one record each.
 */
export class HostStreams {
  readonly #deps: HostStreamsDeps;
  readonly #streams = new Map<string, Stream>();
  readonly #draining = new Set<Stream>();
  /** Streams with something to send, in turn. */
  readonly #ready = new Set<Stream>();
  /** Streams whose inbound queue is full. Reading is paused while there are any. */
  readonly #full = new Set<Stream>();
  /** Unknown streams that were answered with CLOSE, oldest first. */
  readonly #answered = new Set<string>();
  #cancelPause: Cancel | undefined;
  #inFlight = 0;
  #pumping = false;
  #over = false;

  constructor(deps: HostStreamsDeps) {
    this.#deps = deps;
  }

  /** Streams that are open. */
  get size(): number {
    return this.#streams.size;
  }

  /** Bytes of local ends that wait to be sent. */
  get unsentBytes(): number {
    let bytes = 0;
    for (const stream of this.#streams.values()) bytes += stream.outboundBytes;
    return bytes;
  }

  /** A client was matched. One stream over the limit is closed at once, like an unknown one; a known one is ignored. */
  open(id: string): void {
    if (this.#over || this.#streams.has(id)) return;
    if (this.#streams.size >= STREAM_LIMIT) {
      this.#answerUnknown(id);
      return;
    }
    const { clock, window } = this.#deps;
    const stream: Stream = {
      id,
      header: dataHeader(id),
      local: this.#deps.open({
        send: (chunks, done) => this.#sendData(stream, chunks, done),
        resume: () => this.#resume(stream),
        end: () => this.#endLocal(stream),
      }),
      state: 'open',
      inbound: [],
      inboundBytes: 0,
      isAccepted: true,
      consumed: 0,
      window: WINDOW,
      outbound: [],
      outboundBytes: 0,
      credit: window ?? Number.POSITIVE_INFINITY,
      done: undefined,
      ended: false,
      activeAt: clock.monotonic(),
      cancelTimer: () => {},
    };
    this.#streams.set(id, stream);
    this.#watchIdle(stream, IDLE);
  }

  /** Handles a frame of the broker, other than a malformed one. */
  receive(frame: Frame): void {
    if (this.#over) return;
    const stream = this.#streams.get(frame.streamId);
    if (frame.type === 'data') {
      if (stream) this.#receiveData(stream, frame.payload);
      else this.#answerUnknown(frame.streamId);
    } else if (frame.type === 'close') {
      if (stream) this.#closedByClient(stream);
    } else if (stream) {
      stream.credit = Math.min(stream.credit + frame.credit, Number.MAX_SAFE_INTEGER);
      this.#makeReady(stream);
    }
  }

  /** Closes every stream with CLOSE, as the host shuts down. */
  closeAll(): void {
    for (const stream of [...this.#streams.values()]) this.#close(stream);
    this.abort();
  }

  /** The connection is gone: drops every stream. */
  abort(): void {
    this.#over = true;
    this.#cancelPause?.();
    this.#full.clear();
    for (const stream of [...this.#streams.values(), ...this.#draining]) this.#drop(stream);
  }

  #send(head: Uint8Array, parts: readonly Uint8Array[] = [], partBytes = 0): void {
    const length = head.length + partBytes;
    this.#inFlight += length;
    this.#deps.socket.sendBytes(head, parts, () => {
      this.#inFlight -= length;
      if (this.#ready.size > 0) this.#schedulePump();
    });
  }

  // From the client to the local end.

  #receiveData(stream: Stream, payload: Uint8Array): void {
    stream.activeAt = this.#deps.clock.monotonic();
    // The local end has ended, and only its last bytes are in flight.
    if (stream.ended) return;
    this.#enqueue(stream, payload);
    this.#passOn(stream);
    const { inbound, inboundBytes } = stream;
    if (inbound.length < MAX_QUEUED_FRAMES && inboundBytes < MAX_QUEUED_BYTES) return;
    if (stream.state !== 'open') return;
    this.#full.add(stream);
    this.#updatePause();
  }

  /** With flow control the window bounds the bytes, so frames are joined instead of counted. */
  #enqueue(stream: Stream, payload: Uint8Array): void {
    stream.inbound.push(payload);
    stream.inboundBytes += payload.length;
    if (this.#deps.window === undefined || stream.inbound.length < MAX_QUEUED_FRAMES) return;
    if (stream.inboundBytes < MAX_QUEUED_BYTES) stream.inbound = [concatBytes(...stream.inbound)];
  }

  /** Hands queued bytes to the local end for as long as it takes them. */
  #passOn(stream: Stream): void {
    while (stream.isAccepted && stream.state !== 'over') {
      const bytes = stream.inbound.shift();
      if (!bytes) break;
      stream.inboundBytes -= bytes.length;
      stream.consumed += bytes.length;
      stream.isAccepted = stream.local.write(bytes);
    }
    if (stream.state === 'open') this.#grant(stream);
    if (stream.state === 'draining' && stream.inbound.length === 0) this.#endDrained(stream);
    if (stream.inbound.length <= MAX_QUEUED_FRAMES / 2 && stream.inboundBytes <= MAX_QUEUED_BYTES / 2) {
      if (this.#full.delete(stream)) this.#updatePause();
    }
  }

  #grant(stream: Stream): void {
    if (this.#deps.window === undefined || stream.consumed < stream.window / 2) return;
    this.#send(windowFrame(stream.id, stream.consumed + BULK_WINDOW - stream.window));
    stream.window = BULK_WINDOW;
    stream.consumed = 0;
  }

  #resume(stream: Stream): void {
    stream.isAccepted = true;
    this.#passOn(stream);
  }

  #updatePause(): void {
    const { socket, clock } = this.#deps;
    if (this.#full.size === 0) {
      if (!this.#cancelPause) return;
      this.#cancelPause();
      this.#cancelPause = undefined;
      socket.resume();
    } else if (!this.#cancelPause) {
      socket.pause();
      this.#cancelPause = clock.after(MAX_PAUSE, () => {
        for (const stream of [...this.#full]) this.#close(stream);
      });
    }
  }

  /** Answers an unknown stream with one CLOSE, under a flood not before its next DATA. */
  #answerUnknown(id: string): void {
    if (this.#answered.has(id) || this.#inFlight > MAX_IN_FLIGHT) return;
    this.#answered.add(id);
    if (this.#answered.size > MAX_ANSWERED) this.#answered.delete(this.#answered.values().next().value as string);
    this.#send(closeFrame(id));
  }

  /** CLOSE of the broker: nothing more can be sent, and the local end gets the queue. */
  #closedByClient(stream: Stream): void {
    this.#detach(stream, 'draining');
    this.#draining.add(stream);
    stream.cancelTimer = this.#deps.clock.after(DRAIN, () => this.#drop(stream));
    for (const oldest of this.#draining) {
      if (this.#draining.size <= STREAM_LIMIT) break;
      this.#drop(oldest);
    }
    this.#passOn(stream);
  }

  #endDrained(stream: Stream): void {
    stream.state = 'over';
    stream.cancelTimer();
    this.#draining.delete(stream);
    stream.local.end();
  }

  // From the local end to the client.

  #sendData(stream: Stream, chunks: readonly Uint8Array[], done: () => void): void {
    if (stream.state !== 'open' || stream.ended) {
      done();
      return;
    }
    for (const chunk of chunks) {
      if (chunk.length === 0) continue;
      stream.outbound.push(chunk);
      stream.outboundBytes += chunk.length;
    }
    stream.done = done;
    this.#makeReady(stream);
    this.#askForMore(stream);
  }

  #askForMore(stream: Stream): void {
    if (stream.outboundBytes > MAX_UNSENT) return;
    const { done } = stream;
    stream.done = undefined;
    done?.();
  }

  #makeReady(stream: Stream): void {
    if (stream.outboundBytes === 0 || stream.credit === 0) return;
    this.#ready.add(stream);
    this.#schedulePump();
  }

  /** Sends after the current turn, so that the writes of one turn become one record. */
  #schedulePump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    queueMicrotask(() => {
      this.#pumping = false;
      this.#pump();
    });
  }

  #pump(): void {
    while (this.#inFlight < MAX_IN_FLIGHT) {
      const [stream] = this.#ready;
      if (!stream) return;
      this.#ready.delete(stream);
      const length = Math.min(stream.outboundBytes, stream.credit, MAX_RECORD);
      stream.outboundBytes -= length;
      stream.credit -= length;
      stream.activeAt = this.#deps.clock.monotonic();
      const parts = takeBytes(stream.outbound, length);
      this.#send(stream.header, parts.length > MAX_PARTS ? [concatBytes(...parts)] : parts, length);
      if (stream.outboundBytes > 0 && stream.credit > 0) this.#ready.add(stream);
      if (stream.outboundBytes === 0 && stream.ended) this.#close(stream);
      else this.#askForMore(stream);
    }
  }

  #endLocal(stream: Stream): void {
    if (stream.state === 'draining') this.#drop(stream);
    if (stream.state !== 'open' || stream.ended) return;
    stream.ended = true;
    stream.inbound = [];
    stream.inboundBytes = 0;
    if (this.#full.delete(stream)) this.#updatePause();
    if (stream.outboundBytes === 0) this.#close(stream);
  }

  // The end of a stream.

  #watchIdle(stream: Stream, delay: number): void {
    const { clock } = this.#deps;
    stream.cancelTimer = clock.after(delay, () => {
      const left = stream.activeAt + IDLE - clock.monotonic();
      if (left > 0) this.#watchIdle(stream, left);
      else this.#close(stream);
    });
  }

  /** Ends a stream from this side, with its one CLOSE. */
  #close(stream: Stream): void {
    if (stream.state !== 'open') return;
    this.#send(closeFrame(stream.id));
    this.#drop(stream);
  }

  /** Frees all of a stream, including its queues. */
  #drop(stream: Stream): void {
    if (stream.state === 'over') return;
    if (stream.state === 'open') this.#detach(stream, 'over');
    stream.state = 'over';
    stream.cancelTimer();
    this.#draining.delete(stream);
    stream.inbound = [];
    stream.inboundBytes = 0;
    stream.local.destroy();
    if (this.#full.delete(stream)) this.#updatePause();
  }

  /** The stream is over for the broker. */
  #detach(stream: Stream, state: StreamState): void {
    stream.state = state;
    this.#streams.delete(stream.id);
    this.#ready.delete(stream);
    stream.cancelTimer();
    stream.outbound = [];
    stream.outboundBytes = 0;
    const { done } = stream;
    stream.done = undefined;
    this.#deps.completed();
    done?.();
  }
}

/** Removes the first `length` bytes from a queue that contains at least as many. */
function takeBytes(queue: Uint8Array[], length: number): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  let left = length;
  while (left > 0) {
    const [first] = queue as [Uint8Array];
    if (first.length > left) {
      chunks.push(first.subarray(0, left));
      queue[0] = first.subarray(left);
      break;
    }
    chunks.push(first);
    queue.shift();
    left -= first.length;
  }
  return chunks;
}
