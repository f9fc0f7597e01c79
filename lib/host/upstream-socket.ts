export interface UpstreamSocketEvents {
  /** A text frame. Binary ones are ignored. */
  message(text: string): void;
  /** Called exactly once after the socket has opened, and last. 1006 without a close frame, 1009 for a large message. */
  closed(end: { code: number; reason: string }): void;
}

/** An open WebSocket to a server behind the relay. All methods are without effect once it has closed. */
export interface UpstreamSocket {
  send(text: string): void;
  /** Bytes that wait to be sent. Always 0 where the platform does not tell (edge). */
  unsent(): number;
  /**
   * Stops reading, which slows the server down; messages that were already read still arrive. A platform that reads on
   * (edge) buffers them instead, and closes the socket over 16 MiB.
   */
  pause(): void;
  resume(): void;
  /** Starts the closing handshake; without an answer the connection is dropped after a while. */
  close(code?: number, reason?: string): void;
  /** Drops the connection at once. */
  terminate(): void;
}

export interface UpstreamSocketRequest {
  /** `ws:` or `wss:`; `http:` and `https:` mean the same. */
  url: string;
  headers: Record<string, string>;
  /** Aborts the attempt to connect, and later drops the connection. */
  signal: AbortSignal;
  /** Bytes of the largest message. A larger one closes the socket. */
  maxMessage: number;
  /** Milliseconds until the socket has to be open. Default: ten seconds. */
  connectTimeout?: number;
  /**
   * Milliseconds between pings. If nothing arrives between two pings, the server is gone, and the socket closes with
   * 1006. Default: no pings. No effect on a platform without pings (edge).
   */
  pingInterval?: number;
}

/** The server refused the upgrade, or could not be reached. The message is a few words that may be shown to a client. */
export class UpstreamSocketError extends Error {
  /** HTTP status of a refused upgrade. */
  readonly status?: number;
  /** Nothing listens there. */
  readonly isRefused: boolean;

  constructor(message: string, { status, isRefused = false }: { status?: number; isRefused?: boolean } = {}) {
    super(message);
    this.name = 'UpstreamSocketError';
    this.status = status;
    this.isRefused = isRefused;
  }

  static refused = (status: number) => new UpstreamSocketError(`HTTP ${status}`, { status });
}

/**
 * Opens a WebSocket to a server behind the relay. Follows no redirect, offers neither subprotocols nor extensions.
 * Messages may arrive before the caller has resumed from the promise.
 * @throws UpstreamSocketError when it cannot be opened, in which case no event is reported.
 */
export type DialUpstream = (request: UpstreamSocketRequest, events: UpstreamSocketEvents) => Promise<UpstreamSocket>;

/** Milliseconds until a socket has to be open, unless the caller says otherwise. */
export const CONNECT_TIMEOUT = 10_000;
export const TIMED_OUT = 'timed out while connecting';
