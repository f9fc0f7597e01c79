/** How a socket ended, or why there never was one. */
export interface SocketEnd {
  /** Of the WebSocket close frame; 1006 when there was none. */
  code: number;
  reason: string;
  /** What the upgrade was answered with instead of 101. */
  status?: number;
}

export interface SocketEvents {
  /** The upgrade succeeded. `spki` is the SHA-256 of the peer certificate's SPKI in hex, for TLS. */
  open(spki: string | undefined): void;
  /** A text frame. */
  message(text: string): void;
  /** Any sign of life that is no message: a ping or a pong of the protocol. */
  alive(): void;
  /** Called once, whether the socket ever opened or not; nothing is called after it. */
  close(end: SocketEnd): void;
}

export interface DialedSocket {
  send(text: string): void;
  /** Closes in order; `done` is called once the socket has ended. */
  close(code?: number, reason?: string, done?: () => void): void;
  /** Lets go at once. */
  terminate(): void;
}

/** Opens a WebSocket. Never throws: every failure is a `close`. Redirects are not followed. */
export type Dial = (url: string, events: SocketEvents) => DialedSocket;

export interface HttpCall {
  /** Of the relay's socket, `ws:` or `wss:`; the call goes to the same place. */
  socketUrl: string;
  /** Says why the peer's key will not do, before anything is sent; `spki` as `SocketEvents.open` has it. */
  refuse(spki: string | undefined): string | null;
  method: 'GET' | 'POST';
  /** Path and query below the place of the socket. */
  path: string;
  headers: Record<string, string>;
  body?: Uint8Array;
  /** Most bytes of the answer. */
  limit: number;
}

export interface HttpAnswer {
  status: number;
  headers: Record<string, string | undefined>;
  bytes: Uint8Array;
}

/** One HTTP call to a relay, within 15 s of silence. Rejects when there is no whole answer. */
export type Call = (call: HttpCall) => Promise<HttpAnswer>;
