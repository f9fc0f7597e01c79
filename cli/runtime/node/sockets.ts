import type { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Peer } from 'crossws';
import nodeAdapter from 'crossws/adapters/node';
import type { Accepted } from '../../../handlers/sockets.ts';
import type { ByteBudget, Reservation } from '../../../lib/kit/byte-budget.ts';
import { MAX_UNCOUNTED } from '../../../lib/kit/long-json.ts';
import type { Log } from '../../../lib/log.ts';
import type { LongFrame } from '../../../lib/socket/envelope-head.ts';
import type { Transport } from '../../../lib/socket/transport.ts';
import { createSocketHooks, type OpenSocket } from '../socket-hooks.ts';
import { WEBSOCKET_VERSION } from './handshake.ts';
import {
  gatherOnArrival,
  type MessageReservation,
  reservationOf,
  takeMessageListener,
  takeReservation,
  webSocketOf,
} from './internals.ts';

/** Milliseconds for which a client that does not answer a closing handshake keeps its connection. */
export const CLOSE_TIMEOUT = 2_000;
/** Bytes that a client may send before it has authenticated. */
const PRE_AUTH_BYTES = 64 * 1024;
/** Milliseconds in which a client that is not read must read some of the sent data. */
const STALL_TIMEOUT = 45_000;
const SERVER_OPTIONS = {
  // A message in tiny fragments costs far more than its bytes.
  maxFragments: 4096,
  maxBufferedChunks: 65_536,
  perMessageDeflate: false,
  closeTimeout: CLOSE_TIMEOUT,
  clientTracking: false,
  // Pongs are counted with everything else that is sent.
  autoPong: false,
  handleProtocols: ([selected]: Set<string>): string | false => selected ?? false,
};
/** A single namespace, since the relay itself publishes to sockets. */
const NAMESPACE = 'sockets';

/** Our own data, which crossws stores with a peer. */
interface PeerContext {
  accepted?: Accepted;
  socket: Socket;
  open?: OpenSocket;
  transport?: NodeTransport;
}

const contextOf = (peer: Peer): PeerContext => peer.context as unknown as PeerContext;

export interface NodeSocketsOptions {
  log: Log;
  /** Limits the long messages of all sockets. */
  reading: ByteBudget;
  /** Milliseconds in which a client that is not read must read some of the sent data: 45 s by default. */
  stallTimeout?: number;
}

/** Serves the sockets of the table with crossws. */
export function createNodeSockets({ log, reading, stallTimeout = STALL_TIMEOUT }: NodeSocketsOptions) {
  const { hooks, receive } = createSocketHooks(
    {
      take(peer) {
        const context = contextOf(peer);
        const { accepted } = context;
        context.accepted = undefined;
        return accepted;
      },
      open(peer, accepted) {
        const context = contextOf(peer);
        const { socket } = context;
        endAtOnce(socket);
        socket.destroy = destroyWithOneError;
        takeMessages(peer);
        const transport = new NodeTransport(peer, socket, stallTimeout, () => hooks.drain(peer));
        context.transport = transport;
        context.open = { row: accepted.row, events: accepted.open(transport) };
      },
      pong: (peer, data) => contextOf(peer).transport?.pong(data),
      find: (peer) => contextOf(peer).open,
      forget: (peer) => {
        contextOf(peer).open = undefined;
      },
    },
    log,
  );

  /** Takes messages as bytes, before crossws converts them to text, which takes up to 0.2 s for 40 MiB. */
  function takeMessages(peer: Peer): void {
    const webSocket = webSocketOf(peer) as WebSocketPart;
    const { socket } = contextOf(peer);
    gatherOnArrival(webSocket, (size, read) =>
      socket.destroyed ? undefined : new LongMessage(reading, size, peer, socket, read),
    );
    // crossws listens as soon as it has announced the socket.
    queueMicrotask(() => {
      takeMessageListener(webSocket);
      webSocket.on('message', (data: Buffer, isBinary: boolean) => {
        if (data.length > MAX_UNCOUNTED) receive(peer, withRelease(data, webSocket), isBinary);
        else receive(peer, isBinary ? data : data.toString(), isBinary);
      });
    });
  }

  const create = (maxPayload: number) =>
    nodeAdapter({
      hooks,
      getNamespace: () => NAMESPACE,
      // The relay has its own keep-alive.
      idleTimeout: 0,
      serverOptions: { ...SERVER_OPTIONS, maxPayload },
    });
  /** crossws has one message limit per server, so each limit has a server. */
  const adapters = new Map<number, ReturnType<typeof create>>();

  function adapterFor({ row }: Accepted): ReturnType<typeof create> {
    const adapter = adapters.get(row.maxMessage) ?? create(row.maxMessage);
    adapters.set(row.maxMessage, adapter);
    return adapter;
  }

  return {
    /** Completes an accepted handshake. */
    accept(accepted: Accepted, req: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
      const context: PeerContext = { accepted, socket };
      return adapterFor(accepted).handleUpgrade(handshakeOf(req, accepted) as never, socket, head, {
        context,
      } as never);
    },
  };
}

/**
 * The part of a request that crossws needs for the handshake. It keeps that for as long as the socket is open, and the
 * request itself would be several kilobytes. Only the selected subprotocol is passed on.
 */
const handshakeOf = ({ headers }: IncomingMessage, { protocol }: Accepted) => ({
  method: 'GET',
  url: '/',
  headers: {
    upgrade: 'websocket',
    'sec-websocket-key': headers['sec-websocket-key'],
    'sec-websocket-version': WEBSOCKET_VERSION,
    ...(protocol !== undefined && { 'sec-websocket-protocol': protocol }),
  },
});

/** A received long message, with the release of its reservation. */
function withRelease(data: Buffer, webSocket: EventEmitter): LongFrame {
  const reserved = takeReservation(webSocket) as LongMessage | undefined;
  return reserved ? Object.assign(data, { handled: reserved.received() }) : data;
}

/**
 * A long message that is being received, within the common budget. If it stalls while others wait, its client loses the
 * connection; slow handling no longer counts.
 */
class LongMessage implements MessageReservation {
  readonly #reservation: Reservation;
  readonly #socket: Socket;
  readonly #read: () => void;
  #isWhole = false;

  constructor(reading: ByteBudget, size: number, peer: Peer, socket: Socket, read: () => void) {
    this.#socket = socket;
    this.#read = read;
    this.#reservation = reading.reserve(size, read, {
      received: () => socket.bytesRead,
      stalled: ({ release }) => {
        if (this.#isWhole) release();
        else peer.close(1013, 'too slow while others wait');
      },
    });
    socket.once('close', this.#closed);
  }

  get isGranted(): boolean {
    return this.#reservation.isGranted;
  }

  /** The message is complete. Returns the function that releases it. */
  received(): () => void {
    this.#isWhole = true;
    this.#socket.off('close', this.#closed);
    return this.#reservation.release;
  }

  readonly #closed = (): void => {
    const { isGranted, release } = this.#reservation;
    release();
    // Otherwise `ws` would wait for this chunk before it reports the end of the socket.
    if (!isGranted) this.#read();
  };
}

/**
 * A client that ends its side is gone, and with nothing left to send so is the connection. The listeners of `ws` would first
 * shut down the other side and then end its receiver twice, an unseen error: an eighth of the cost of a connection (2026-11).
 */
function endAtOnce(socket: Socket): void {
  const listeners = socket.listeners('end');
  socket.removeAllListeners('end').on('end', () => {
    if (socket.writableLength === 0) socket.destroy();
    else for (const listener of listeners) listener.call(socket);
  });
}

/**
 * Gives every end of a connection a reason while writes are queued. Without one, Node creates an error with a stack for each
 * queued write: seconds for a client that never read (2026-11).
 */
const destroyWithOneError: Socket['destroy'] = function (this: Socket, error) {
  // Frames sent in this turn are written first, since destroying the socket would drop them.
  if (this.writableCorked > 0) this.uncork();
  const reason = error ?? (this.writableLength > 0 ? new Error('the connection was dropped') : undefined);
  return Socket.prototype.destroy.call(this, reason);
};

/** The used part of the bundled `ws` socket. */
interface WebSocketPart extends EventEmitter {
  readonly readyState: number;
  readonly bufferedAmount: number;
  send(data: string | Uint8Array, options: { binary: boolean }, sent?: () => void): void;
  pong(data: Uint8Array, mask: boolean, sent?: () => void): void;
  pause(): void;
  resume(): void;
}

const OPEN = 1;
/** Bytes that are held back for the end of a turn. */
const MAX_CORKED = 16 * 1024;

const TEXT = { binary: false };
const BINARY = { binary: true };

/**
 * A Node socket in the form for the relay's domain. Until the client has authenticated, the connection is destroyed once it
 * has sent 64 KiB, counted on the wire, because a message only counts when it is complete.
 */
class NodeTransport implements Transport {
  readonly #peer: Peer;
  readonly #webSocket: WebSocketPart;
  readonly #socket: Socket;
  readonly #stallTimeout: number;
  readonly #drained: () => void;
  #guard: (() => void) | undefined;
  #unsentMessages = 0;
  #isPaused = false;
  /** True until the end of a turn in which something was sent. */
  #isCorked = false;
  /** Bytes that were unsent when that turn began. */
  #backlog = 0;

  constructor(peer: Peer, socket: Socket, stallTimeout: number, drained: () => void) {
    this.#peer = peer;
    this.#stallTimeout = stallTimeout;
    this.#drained = drained;
    this.#webSocket = webSocketOf(peer) as WebSocketPart;
    this.#socket = socket;
    const start = socket.bytesRead;
    this.#guard = () => {
      if (socket.bytesRead - start > PRE_AUTH_BYTES) socket.destroy();
    };
    socket.on('data', this.#guard);
  }

  get id(): string {
    return this.#peer.id;
  }

  send(data: string | Uint8Array): void {
    // `ws` would count data for a closing socket as unsent forever.
    if (!this.isWritable()) return;
    this.#cork();
    this.#webSocket.send(data, typeof data === 'string' ? TEXT : BINARY, this.#counted());
    if (this.#socket.writableLength > MAX_CORKED) this.#socket.uncork();
  }

  /** Frames of one turn of the event loop leave in one write: each write to the system costs a third of a message (2026-11). */
  #cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    this.#backlog = this.#webSocket.bufferedAmount;
    this.#socket.cork();
    setImmediate(this.#uncork);
  }

  readonly #uncork = (): void => {
    this.#isCorked = false;
    this.#socket.uncork();
  };

  pong(data: Uint8Array): void {
    if (this.isWritable()) this.#webSocket.pong(data, false, this.#counted());
  }

  /** Counts the next message, unless none is pending: a callback costs a fifth of a short message. */
  #counted(): (() => void) | undefined {
    if (this.unsent() === 0) return undefined;
    this.#unsentMessages++;
    return this.#sent;
  }

  /** A counted message has left, or never will. */
  readonly #sent = (): void => {
    this.#unsentMessages--;
    if (this.#unsentMessages === 0 && this.#isPaused && !this.#socket.destroyed) this.#drained();
  };

  close(code: number, reason: string): void {
    this.#peer.close(code, reason);
  }

  terminate(): void {
    this.#peer.terminate();
  }

  isWritable(): boolean {
    return this.#webSocket.readyState === OPEN;
  }

  /** Does not count frames held back until the turn ends, since nobody knows yet whether the client takes them. */
  unsent(): number {
    return this.#socket.writableCorked > 0 ? this.#backlog : this.#webSocket.bufferedAmount;
  }

  unsentMessages(): number {
    return this.#unsentMessages;
  }

  pause(): boolean {
    this.#isPaused = true;
    this.#webSocket.pause();
    // Restarted by any data that leaves, even a part of a write.
    this.#socket.setTimeout(this.#stallTimeout, this.#stalled);
    return true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#socket.setTimeout(0, this.#stalled);
    this.#webSocket.resume();
  }

  readonly #stalled = (): void => {
    if (this.unsent() > 0) this.terminate();
    else this.#socket.once('timeout', this.#stalled);
  };

  received(): number | undefined {
    return reservationOf(this.#webSocket)?.isGranted === false ? undefined : this.#socket.bytesRead;
  }

  ping(data?: string): void {
    // Joins the frames of this turn, and waits for no others.
    if (this.isWritable()) this.#peer.ping(data);
  }

  authenticated(): void {
    if (this.#guard) this.#socket.off('data', this.#guard);
    this.#guard = undefined;
  }
}
