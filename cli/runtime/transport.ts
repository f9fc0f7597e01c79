import type { Socket } from 'node:net';
import type { Peer as CrosswsPeer } from 'crossws';
import type { Transport } from '../../lib/socket/transport.ts';

const PRE_AUTH_BYTES = 64 * 1024;

/** The parts of crossws's Node peer that its types leave out. */
type NodePeer = CrosswsPeer & { terminate(): void; ping(): void; websocket: { pause?(): void; resume?(): void } };

/**
 * A Node socket as the relay's domain sees it. Until the client has authenticated, the connection is destroyed once
 * it has sent 64 KiB: counted on the wire, because a message only counts when it is whole.
 */
export class NodeTransport implements Transport {
  readonly id: string;
  readonly #peer: NodePeer;
  readonly #socket: Socket;
  #guard: (() => void) | undefined;

  constructor(id: string, peer: CrosswsPeer, socket: Socket) {
    this.id = id;
    this.#peer = peer as NodePeer;
    this.#socket = socket;
    const start = socket.bytesRead;
    this.#guard = () => {
      if (socket.bytesRead - start > PRE_AUTH_BYTES) socket.destroy();
    };
    socket.on('data', this.#guard);
  }

  send(text: string): void {
    this.#peer.send(text);
  }

  close(code: number, reason: string): void {
    this.#peer.close(code, reason);
  }

  terminate(): void {
    this.#peer.terminate();
  }

  unsent(): number {
    return this.#peer.bufferedAmount;
  }

  pause(): boolean {
    this.#peer.websocket.pause?.();
    return true;
  }

  resume(): void {
    this.#peer.websocket.resume?.();
  }

  received(): number {
    return this.#socket.bytesRead;
  }

  ping(): void {
    this.#peer.ping();
  }

  authenticated(): void {
    if (this.#guard) this.#socket.off('data', this.#guard);
    this.#guard = undefined;
  }
}
