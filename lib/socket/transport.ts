import type { WebPage } from '../access/page.ts';
import type { Peer } from '../access/peer.ts';
import type { TransportHint } from '../sessions/session.ts';
import type { LongFrame } from './envelope-head.ts';

/** A socket as the runtime provides it. */
export interface Transport {
  readonly id: string;
  /** Sends one message: a text frame for a string, a binary frame for bytes. */
  send(data: string | Uint8Array): void;
  /** Starts a closing handshake. */
  close(code: number, reason: string): void;
  /** Drops the connection. */
  terminate(): void;
  /** False once either side has begun to close, when nothing sent can leave. Absent where the runtime cannot tell. */
  isWritable?(): boolean;
  /** Bytes sent that have not left the process; at the edge, which hides them, those since the client's last frame. */
  unsent(): number;
  /** Messages among them. Absent where the runtime cannot tell. */
  unsentMessages?(): number;
  /** Every producer pauses above so many unsent bytes, even if it allows more (edge). */
  readonly credit?: number;
  /**
   * Stops reading from the socket, and drops a client that takes nothing of what is sent for 45 s meanwhile: nothing else
   * could tell that it is gone. Returns false where the runtime cannot.
   */
  pause(): boolean;
  resume(): void;
  /**
   * Bytes received so far, as a sign of life. Undefined where the runtime keeps sockets alive itself, and while the client
   * is not read because others use up the budget.
   */
  received?(): number | undefined;
  /** Sends a protocol ping, whose answer repeats `data`. Absent where the runtime hides pings (edge). */
  ping?(data?: string): void;
  /** The client has authenticated: lifts its pre-auth byte budget. */
  authenticated?(): void;
}

/** Events of one socket, reported by the runtime. */
export interface SocketEvents {
  message(text: string): void;
  /**
   * A text message over 256 KiB as UTF-8 bytes, on a runtime that has not decoded it, which takes up to 0.2 s. Without
   * this, `message` gets its text. Takes over the release of the frame.
   */
  longMessage?(bytes: LongFrame): void;
  /** A binary message, on paths that take them. */
  bytes?(bytes: Uint8Array): void;
  /** The sent data has left, or, at the edge, may have. */
  drained(): void;
  /** The client pinged; the runtime has already answered. */
  pinged(): void;
  /** The client answered a ping of the relay, and repeats its data. */
  ponged?(data?: Uint8Array): void;
  /** `end` is absent when the socket did not fail or close by itself: the relay ended it. */
  closed(end?: SocketEnd): void;
}

/** The end of a socket: 1006 without a closing handshake, 1005 with one that names no code. */
export interface SocketEnd {
  code: number;
  reason: string;
}

/** The client of a socket, as known when it opens. */
export interface Caller {
  peer: Peer;
  /** Key for rate limits (contract 01 §1.4). */
  key: string;
  /** Transport of the client's own leg: a proxy may hide TLS. */
  transportHint: TransportHint;
  /** URL by which a client of this host's own listener came, as its `Host` names it. */
  url?: string;
  /** The web page that it is. */
  page?: WebPage;
}
