/** The end of a socket, or the reason why it could not be opened. */
export interface SocketEnd {
  /** From the close frame; 1006 if there was none. */
  code: number;
  reason: string;
  /** HTTP status of a refused upgrade. */
  status?: number;
  /** Nothing listens there, or behind the broker: see `NotListening`. */
  isRefused?: true;
  /** The peer is not the pinned origin: see `OtherPeer`. */
  isOtherPeer?: true;
}

/** The broker answers but its host is not connected, or the broker itself is down. */
export class NotListening extends Error {}

/** The server at a pinned origin has another key or certificate. Only the handshake was sent. */
export class OtherPeer extends Error {}

/**
 * SHA-256 of the SPKI of the peer's certificate in hex. Undefined without TLS; null on a platform that verifies the
 * certificate itself and does not expose it (a browser).
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

/** A pinned origin, as a pairing link describes it (contract 08 §2.5). Never changed by anything learned later. */
export interface PinnedOrigin {
  /** `sha256/` and the standard base64 of the SHA-256 of the certificate's SubjectPublicKeyInfo. */
  pin: string;
  /** Standard base64 of the certificate in DER form. */
  certDer: string;
}

/** A byte stream to a host over a WebSocket: binary messages in both directions, after one text message in each. */
export interface TunnelRequest {
  /** `wss:`. The server needs a certificate of a known authority. */
  url: string;
  /** First message, created again for every tunnel. Secret. */
  hello(): string;
  /** Returns why the server's first message means a refusal, or null. */
  refuse(answer: string): string | null;
  /** True if that refusal says that the host is not connected. */
  isOffline?(answer: string): boolean;
}

/** The route to a pinned origin: direct, or through a separate tunnel for every connection. */
export interface PinnedRoute {
  origin: PinnedOrigin;
  tunnel?: TunnelRequest;
}

/**
 * Opens a WebSocket. Never throws: every failure is reported by `close`. Redirects are not followed. With `route`, the
 * URL must be `wss:`, and nothing is sent before the peer has proved to be the pinned origin.
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
  /** Aborts the call. */
  signal?: AbortSignal;
}

export interface RelayResponse {
  status: number;
  headers: Record<string, string | undefined>;
  bytes: Uint8Array;
}

/** Performs the call. Follows no redirect. Rejects if the response is incomplete, and after 15 s of silence. */
export type CallRelay = (call: RelayCall) => Promise<RelayResponse>;
