import type { UpstreamSocket, UpstreamSocketEvents, UpstreamSocketRequest } from './upstream-socket.ts';

export interface BrokerSocketEvents extends UpstreamSocketEvents {
  /** A binary message. The bytes stay valid afterwards. */
  bytes(bytes: Uint8Array): void;
}

/**
 * The connector's WebSocket to its broker (contract 08 §6.4). Like other sockets to servers, with binary messages in
 * addition.
 */
export interface BrokerSocket extends UpstreamSocket {
  /** Sends a binary message: a short head, then parts. `sent` is called once it has left the process, or never can. */
  sendBytes(head: Uint8Array, parts: readonly Uint8Array[], sent: () => void): void;
}

/**
 * Opens the socket. The broker's certificate is always verified, regardless of the environment.
 * @throws UpstreamSocketError when it cannot be opened, in which case no event is reported.
 */
export type DialBroker = (request: UpstreamSocketRequest, events: BrokerSocketEvents) => Promise<BrokerSocket>;
