import type { WebSocket as WorkerSocket } from '@cloudflare/workers-types';

/**
 * Data that crossws stores with a socket over a sleep of the object: the id of its peer and the URL of its handshake. The
 * members are undocumented; test/edge/sleep.test.ts fails if one of them changes.
 */
export function attachmentOf(socket: { deserializeAttachment(): unknown }): { id?: string; url?: string } {
  const { i, u } = (socket.deserializeAttachment() ?? {}) as { i?: string; u?: string };
  return { id: i, url: u };
}

/** The platform's socket of a peer: `peer.websocket` is a proxy, which the platform does not accept as one of its own. */
export const socketOf = (peer: object): WorkerSocket => (peer as { _internal: { ws: WorkerSocket } })._internal.ws;
