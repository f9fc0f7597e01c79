import type { UpstreamSocket, UpstreamSocketEvents, UpstreamSocketRequest } from './upstream-socket.ts';

export interface BrokerSocketEvents extends UpstreamSocketEvents {
  /** A binary message, which stays valid. */
  bytes(bytes: Uint8Array): void;
}

/** The connector's WebSocket to its broker (contract 08 §6.4): as other sockets to servers, and with binary messages. */
export interface BrokerSocket extends UpstreamSocket {
  /** Sends a binary message. `sent` is called once it has left the process, or never will. */
  sendBytes(bytes: Uint8Array, sent: () => void): void;
}

/**
 * Opens the socket. The broker's certificate is always verified, whatever the environment says.
 * @throws UpstreamSocketError when it does not open. No event is reported then.
 */
export type DialBroker = (request: UpstreamSocketRequest, events: BrokerSocketEvents) => Promise<BrokerSocket>;
