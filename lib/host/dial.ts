/** How a socket ended, or why it could not be opened. */
export interface SocketEnd {
  /** From the close frame; 1006 if there was none. */
  code: number;
  reason: string;
  /** HTTP status of a refused upgrade. */
  status?: number;
}

export interface SocketEvents {
  /** The upgrade succeeded. With TLS, `spki` is the SHA-256 of the peer certificate's SPKI in hex. */
  open(spki: string | undefined): void;
  /** A text frame. */
  message(text: string): void;
  /** A WebSocket ping or pong. */
  alive(): void;
  /** Called exactly once, even if the socket never opened, and last. */
  close(end: SocketEnd): void;
}

export interface DialedSocket {
  send(text: string): void;
  /** Performs the closing handshake. `done` is called once the socket has ended. */
  close(code?: number, reason?: string, done?: () => void): void;
  /** Drops the connection at once. */
  terminate(): void;
}

/** Opens a WebSocket. Never throws: every failure is reported by `close`. Redirects are not followed. */
export type Dial = (url: string, events: SocketEvents) => DialedSocket;

/** An HTTP call to the relay behind a socket. */
export interface RelayCall {
  /** The socket's URL, `ws:` or `wss:`. The call goes to the same host and port. */
  socketUrl: string;
  /** Called before anything is sent. Returns why the peer's key is refused, or null. `spki` as in `SocketEvents.open`. */
  refuse(spki: string | undefined): string | null;
  method: 'GET' | 'POST';
  /** Path and query, relative to the path of the socket without `/ws`. */
  path: string;
  headers: Record<string, string>;
  body?: Uint8Array;
  /** Maximum size of the response body, bytes. */
  limit: number;
}

export interface RelayResponse {
  status: number;
  headers: Record<string, string | undefined>;
  bytes: Uint8Array;
}

/** Performs the call. Rejects without a complete response, and after 15 s of silence. */
export type CallRelay = (call: RelayCall) => Promise<RelayResponse>;
