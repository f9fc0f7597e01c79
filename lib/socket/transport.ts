import type { WebPage } from '../access/page.ts';
import type { Peer } from '../access/peer.ts';
import type { TransportHint } from '../sessions/session.ts';
import type { LongFrame } from './envelope-head.ts';

/** A socket as provided by the runtime. */
export interface Transport {
  readonly id: string;
  /** Sends one message: a text frame for a string, a binary frame for bytes. */
  send(data: string | Uint8Array): void;
  /** Starts a closing handshake. */
  close(code: number, reason: string): void;
  /** Drops the connection. */
  terminate(): void;
  /** False once either side has begun to close, so that nothing sent can leave. Absent if the runtime cannot tell. */
  isWritable?(): boolean;
  /** Bytes sent that are still in the process; at the edge, which hides them, those since the client's last frame. */
  unsent(): number;
  /** Number of messages among them. Absent if the runtime cannot tell. */
  unsentMessages?(): number;
  /** Every producer pauses above this many unsent bytes, even if it allows more (edge). */
  readonly credit?: number;
  /**
   * Stops reading from the socket. Drops a client that reads nothing for 45 s meanwhile, since nothing else could detect its
   * end. Returns false if the runtime cannot pause.
   */
  pause(): boolean;
  resume(): void;
  /**
   * Bytes received so far, as a sign of life. Undefined if the runtime keeps sockets alive itself, and while the client is
   * not read because others use up the budget.
   */
  received?(): number | undefined;
  /** Sends a protocol ping, whose answer repeats `data`. Absent if the runtime hides pings (edge). */
  ping?(data?: string): void;
  /** The client has authenticated: lifts its pre-auth byte budget. */
  authenticated?(): void;
}

/** Events of one socket, reported by the runtime. */
export interface SocketEvents {
  message(text: string): void;
  /**
   * A text message over 256 KiB as UTF-8 bytes, from a runtime that has not decoded it, which takes up to 0.2 s. If absent,
   * `message` gets its text. Takes over the release of the frame.
   */
  longMessage?(bytes: LongFrame): void;
  /** A binary message, on paths that accept them. */
  bytes?(bytes: Uint8Array): void;
  /** The sent data has left, or, at the edge, may have. */
  drained(): void;
  /** The client pinged; the runtime has already answered. */
  pinged(): void;
  /** The client answered a ping of the relay, with the ping's data. */
  ponged?(data?: Uint8Array): void;
  /** `end` is absent if the relay closed the socket, rather than a failure or the client. */
  closed(end?: SocketEnd): void;
}

/** The end of a socket: 1006 without a closing handshake, 1005 if its close frame has no code. */
export interface SocketEnd {
  code: number;
  reason: string;
}

/** Facts about the client of a socket when it opens. */
export interface Caller {
  peer: Peer;
  /** Key for rate limits (contract 01 §1.4). */
  key: string;
  /** Transport of the client's own leg: a proxy may hide TLS. */
  transportHint: TransportHint;
  /** URL used by a client of this host's own listener, from its `Host`. */
  url?: string;
  /** Set if the client is a web page. */
  page?: WebPage;
}
