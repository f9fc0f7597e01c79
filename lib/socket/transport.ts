import type { Peer } from '../access/peer.ts';
import type { TransportHint } from '../sessions/session.ts';

/** The runtime's end of a socket. */
export interface Transport {
  readonly id: string;
  send(text: string): void;
  /** Starts a closing handshake. */
  close(code: number, reason: string): void;
  /** Drops the connection. */
  terminate(): void;
  /** Whether what is sent now can still leave: not once either side has begun to close. Without it, until it ended. */
  isWritable?(): boolean;
  /** Bytes that were sent and have not left the process. Always 0 at the edge. */
  unsent(): number;
  /** Stops reading from the socket. False where the runtime cannot. */
  pause(): boolean;
  resume(): void;
  /** Bytes received so far: a growing number is a sign of life. Undefined where the runtime keeps sockets alive itself. */
  received?(): number;
  ping?(): void;
  /** The client has authenticated: its byte budget is lifted. */
  authenticated?(): void;
}

/** What is known of a client when its socket opens. */
export interface Caller {
  peer: Peer;
  /** Limit key (contract 01 §1.4). */
  key: string;
  /** How the client's own leg is transported. */
  transportHint: TransportHint;
}
