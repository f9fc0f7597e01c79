import type { Socket } from 'node:net';
import { WebSocket } from 'ws';
import type { SocketEvents } from '../../../lib/socket/sockets.ts';
import type { Transport } from '../../../lib/socket/transport.ts';

const PRE_AUTH_BYTES = 64 * 1024;
const TEXT = { binary: false };

/** A socket that knows who follows its life. */
export class RelayWebSocket extends WebSocket {
  events?: SocketEvents;
}

/**
 * A Node socket as the relay's domain sees it. Until the client has authenticated, the connection is destroyed once
 * it has sent 64 KiB: counted on the wire, because a message only counts when it is whole.
 */
export class NodeTransport implements Transport {
  readonly id: string;
  readonly #webSocket: RelayWebSocket;
  readonly #socket: Socket;
  #guard: (() => void) | undefined;
  #awaitsDrain = false;

  constructor(id: string, webSocket: RelayWebSocket, socket: Socket) {
    this.id = id;
    this.#webSocket = webSocket;
    this.#socket = socket;
    const start = socket.bytesRead;
    this.#guard = () => {
      if (socket.bytesRead - start > PRE_AUTH_BYTES) socket.destroy();
    };
    socket.on('data', this.#guard);
  }

  send(text: string): void {
    // What is sent to a socket that is closing is dropped; `ws` would answer with an error.
    if (this.#webSocket.readyState !== this.#webSocket.OPEN) return;
    this.#webSocket.send(text, TEXT);
    if (this.#socket.writableNeedDrain) this.#awaitDrain();
  }

  /**
   * Listens only while something waits: with a listener on every socket, V8 keeps dead sockets through several
   * collections (2026-11).
   */
  #awaitDrain(): void {
    if (this.#awaitsDrain) return;
    this.#awaitsDrain = true;
    this.#socket.once('drain', () => {
      this.#awaitsDrain = false;
      this.#webSocket.events?.drained();
    });
  }

  close(code: number, reason: string): void {
    this.#webSocket.close(code, reason);
  }

  terminate(): void {
    this.#webSocket.terminate();
  }

  isWritable(): boolean {
    return this.#webSocket.readyState === this.#webSocket.OPEN;
  }

  unsent(): number {
    return this.#webSocket.bufferedAmount;
  }

  pause(): boolean {
    this.#webSocket.pause();
    return true;
  }

  resume(): void {
    this.#webSocket.resume();
  }

  received(): number {
    return this.#socket.bytesRead;
  }

  ping(): void {
    if (this.#webSocket.readyState === this.#webSocket.OPEN) this.#webSocket.ping();
  }

  authenticated(): void {
    if (this.#guard) this.#socket.off('data', this.#guard);
    this.#guard = undefined;
  }
}
