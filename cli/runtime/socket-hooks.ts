import type { Hooks, Message, Peer } from 'crossws';
import type { SocketRow } from '../../handlers/sockets.ts';
import { describeError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import { isLongerThan } from '../../lib/socket/envelope.ts';
import type { SocketEvents } from '../../lib/socket/transport.ts';

/** An open socket: its row of the socket table, and the object that takes its events. */
export interface OpenSocket {
  row: SocketRow;
  events: SocketEvents;
}

/** What differs between the runtimes: where the sockets of peers are kept. */
export interface SocketRuntime {
  /** Opens the socket of a handshake that the table accepted. */
  open(peer: Peer): void;
  /** The open socket of a peer. */
  find(peer: Peer): OpenSocket | undefined;
  /** Forgets the socket of a peer; its events are no longer delivered. */
  forget(peer: Peer): void;
}

type SocketHooks = Pick<Hooks, 'open' | 'message' | 'drain' | 'ping' | 'close' | 'error'>;

/** The hooks of crossws, shared by the Node server and the Durable Object. */
export function createSocketHooks(runtime: SocketRuntime, log: Log): SocketHooks {
  function end(peer: Peer): void {
    const socket = runtime.find(peer);
    runtime.forget(peer);
    socket?.events.closed();
  }

  function receive(peer: Peer, { row, events }: OpenSocket, message: Message): void {
    const { rawData } = message;
    if (
      typeof rawData === 'string' ? isLongerThan(rawData, row.maxMessage) : message.uint8Array().length > row.maxMessage
    ) {
      // Only at the edge: on Node the server refuses a message before it is whole.
      peer.close(1009, 'message too large');
      end(peer);
    } else if (typeof rawData === 'string') events.message(rawData);
    else if (row.binary) events.bytes?.(message.uint8Array());
  }

  /** A row that throws loses its socket, and nothing else. */
  function failed(peer: Peer, what: string, error: unknown): void {
    log.error(`${what} failed: ${describeError(error)}`);
    peer.close(1011, 'internal error');
    end(peer);
  }

  return {
    open(peer) {
      try {
        runtime.open(peer);
      } catch (error) {
        failed(peer, 'opening a socket', error);
      }
    },
    message(peer, message) {
      const socket = runtime.find(peer);
      if (!socket) return;
      try {
        receive(peer, socket, message);
      } catch (error) {
        failed(peer, `a message on ${socket.row.path}`, error);
      }
    },
    drain: (peer) => runtime.find(peer)?.events.drained(),
    ping: (peer) => runtime.find(peer)?.events.pinged(),
    close: end,
    error: (_peer, error) => log.debug(`socket error: ${describeError(error)}`),
  };
}
