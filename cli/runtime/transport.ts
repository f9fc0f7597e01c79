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
export function nodeTransport(peer: CrosswsPeer, socket: Socket): Transport {
  const node = peer as NodePeer;
  const start = socket.bytesRead;
  const guard = () => {
    if (socket.bytesRead - start > PRE_AUTH_BYTES) socket.destroy();
  };
  socket.on('data', guard);
  return {
    id: peer.id,
    send: (text) => void peer.send(text),
    close: (code, reason) => peer.close(code, reason),
    terminate: () => node.terminate(),
    unsent: () => peer.bufferedAmount,
    pause() {
      node.websocket.pause?.();
      return true;
    },
    resume: () => node.websocket.resume?.(),
    received: () => socket.bytesRead,
    ping: () => node.ping(),
    authenticated: () => void socket.off('data', guard),
  };
}
