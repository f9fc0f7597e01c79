/** The end of a socket, or the reason why it could not be opened. */
export interface SocketEnd {
  /** From the close frame; 1006 if there was none. */
  code: number;
  reason: string;
  /** HTTP status of a refused upgrade. */
  status?: number;
  /** Nothing listens there, or behind the broker: see `NotListening`. */
  isRefused?: true;
  /** The peer is another one than the pinned origin: see `OtherPeer`. */
  isOtherPeer?: true;
}

/** The broker is there, and its host is not; or the broker is away itself. */
export class NotListening extends Error {}

/** The server at a pinned origin has another key or certificate. Nothing but the handshake was sent. */
export class OtherPeer extends Error {}

/**
 * SHA-256 of the SPKI of the peer's certificate in hex. Undefined without TLS; null where the platform has checked the
 * certificate for the peer's name and shows it to nobody (a browser).
 */
export type PeerKey = string | null | undefined;

export interface SocketEvents {
  /** The upgrade succeeded. */
  open(spki: PeerKey): void;
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

/**
 * A pinned origin, as a pairing link describes it (contract 08 §2.5). Nothing that is learned later adds to it or changes
 * it.
 */
export interface PinnedOrigin {
  /** `sha256/` and the standard base64 of the SHA-256 of the certificate's SubjectPublicKeyInfo. */
  pin: string;
  /** Standard base64 of the certificate in DER form. */
  certDer: string;
}

/** A byte stream to a host over a WebSocket: binary messages in both directions, after one text message in each. */
export interface TunnelRequest {
  /** `wss:`. The server has to have a certificate of a known authority. */
  url: string;
  /** First message; made anew for every tunnel. Secret. */
  hello(): string;
  /** Why the tunnel is refused after the server's first message, or null. */
  refuse(answer: string): string | null;
  /** True if that refusal says that the host is not connected. */
  isOffline?(answer: string): boolean;
}

/** The route to a pinned origin: direct, or through a tunnel of its own for every connection. */
export interface PinnedRoute {
  origin: PinnedOrigin;
  tunnel?: TunnelRequest;
}

/**
 * Opens a WebSocket. Never throws: every failure is reported by `close`. Redirects are not followed. With `route`, the
 * URL has to be `wss:`, and the peer has to be the pinned origin before anything is sent.
 */
export type Dial = (url: string, events: SocketEvents, route?: PinnedRoute) => DialedSocket;

/** An HTTP call to the relay behind a socket. */
export interface RelayCall {
  /** The socket's URL, `ws:` or `wss:`. The call goes to the same host and port. */
  socketUrl: string;
  /** As for `Dial`. */
  route?: PinnedRoute;
  /** Called before anything is sent. Returns why the peer's key is refused, or null. `spki` as in `SocketEvents.open`. */
  refuse(spki: string | undefined): string | null;
  method: 'GET' | 'POST' | 'DELETE';
  /** Path and query, relative to the path of the socket without `/ws`. */
  path: string;
  headers: Record<string, string>;
  body?: Uint8Array;
  /** Maximum size of the response body, bytes. */
  limit: number;
  /** Ends the call. */
  signal?: AbortSignal;
}

export interface RelayResponse {
  status: number;
  headers: Record<string, string | undefined>;
  bytes: Uint8Array;
}

/** Performs the call. Follows no redirect. Rejects without a complete response, and after 15 s of silence. */
export type CallRelay = (call: RelayCall) => Promise<RelayResponse>;
