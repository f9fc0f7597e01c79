import type { Hooks, Peer } from 'crossws';
import type { Accepted, SocketRow } from '../../handlers/sockets.ts';
import { describeError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import { isLongerThan } from '../../lib/socket/envelope.ts';
import { releaseFrame, type TextFrame, textOfFrame } from '../../lib/socket/envelope-head.ts';
import type { SocketEvents } from '../../lib/socket/transport.ts';

/** An open socket: its row of the socket table, and the handler of its events. */
export interface OpenSocket {
  row: SocketRow;
  events: SocketEvents;
}

/** The part that differs between the runtimes: the storage of the sockets of peers. */
export interface SocketRuntime {
  /** Bytes of the largest message that the platform delivers, if less than a row allows. */
  maxMessage?: number;
  /** A peer has sent a message, the only sign in this runtime that its client has room again (edge). */
  onReceived?(peer: Peer): void;
  /** Takes the accepted handshake of a peer, once, since it holds the request. */
  take(peer: Peer): Accepted | undefined;
  /** Opens the socket of a handshake. */
  open(peer: Peer, accepted: Accepted): void;
  /** The open socket of a peer. */
  find(peer: Peer): OpenSocket | undefined;
  /** Forgets the socket of a peer; its events are no longer delivered. */
  forget(peer: Peer): void;
  /** Answers a ping, if the platform does not. */
  pong?(peer: Peer, data: Uint8Array): void;
}

type SocketHooks = Pick<Hooks, 'open' | 'message' | 'drain' | 'ping' | 'close' | 'error'> &
  Required<Pick<Hooks, 'pong'>>;

/** The hooks of crossws, shared by the Node server and the Durable Object. */
export function createSocketHooks(runtime: SocketRuntime, log: Log) {
  /** Runs a row's handler: a failure closes this socket, but must not end the process or affect other sockets. */
  function guarded(peer: Peer, path: string, action: () => void): void {
    try {
      action();
    } catch (error) {
      log.error(`a socket on ${path} failed: ${describeError(error)}`);
      peer.close(1011, 'internal error');
      end(peer);
    }
  }

  function end(peer: Peer, details?: { code?: number; reason?: string }): void {
    const socket = runtime.find(peer);
    runtime.forget(peer);
    const how = details && { code: details.code ?? 1006, reason: details.reason ?? '' };
    if (socket) guarded(peer, socket.row.path, () => socket.events.closed(how));
  }

  function deliver(peer: Peer, action: (socket: OpenSocket) => void): void {
    const socket = runtime.find(peer);
    if (socket) guarded(peer, socket.row.path, () => action(socket));
  }

  /** Returns true if the row has taken over the release of a long frame. */
  function take(peer: Peer, { row, events }: OpenSocket, data: TextFrame, isBinary: boolean): boolean {
    if (runtime.onReceived) {
      runtime.onReceived(peer);
      events.drained();
    }
    if (isLongerThan(data, Math.min(row.maxMessage, runtime.maxMessage ?? row.maxMessage))) {
      // Only at the edge; on Node the server refuses a message before it is complete.
      peer.close(1009, 'message too large');
      end(peer);
    } else if (typeof data === 'string') events.message(data);
    else if (isBinary) {
      if (row.binary) events.bytes?.(data);
    } else if (events.longMessage) {
      events.longMessage(data);
      return true;
    } else events.message(textOfFrame(data));
    return false;
  }

  /** Delivers a message: text as a string, or as the bytes of a long one, or a binary message. */
  function receive(peer: Peer, data: TextFrame, isBinary: boolean): void {
    let isConsumed = false;
    deliver(peer, (socket) => {
      isConsumed = take(peer, socket, data, isBinary);
    });
    if (!isConsumed) releaseFrame(data);
  }

  const hooks: SocketHooks = {
    open(peer) {
      const accepted = runtime.take(peer);
      if (accepted) guarded(peer, accepted.row.path, () => runtime.open(peer, accepted));
    },
    message(peer, message) {
      const { rawData } = message;
      const isText = typeof rawData === 'string';
      receive(peer, isText ? rawData : message.uint8Array(), !isText);
    },
    drain: (peer) => deliver(peer, ({ events }) => events.drained()),
    ping(peer, data) {
      runtime.pong?.(peer, data as Uint8Array);
      deliver(peer, ({ events }) => events.pinged());
    },
    pong: (peer, data) => deliver(peer, ({ events }) => events.ponged?.(data as Uint8Array | undefined)),
    close: end,
    error: (_peer, error) => log.debug(`socket error: ${describeError(error)}`),
  };
  return { hooks, receive };
}
