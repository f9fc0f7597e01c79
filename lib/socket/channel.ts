import type { Session } from '../sessions/session.ts';
import type { Message, Payload } from './envelope.ts';
import type { EnvelopeHead } from './envelope-head.ts';
import type { Caller } from './transport.ts';
import type { WatermarkLimits } from './watermark.ts';

/** An authenticated socket as its channels see it. */
export interface Connection {
  readonly id: string;
  readonly caller: Caller;
  readonly session: Session;
  /** True if the client takes the typed chat stream. */
  readonly typedStream: boolean;
  readonly isOpen: boolean;
  /** True if a message sent now can still reach the client, as far as this side knows. */
  readonly isWritable: boolean;
  /** Bytes waiting to be sent. */
  readonly unsent: number;
  /** Sends one envelope; does nothing on a closed connection. Closes a client that reads too slowly (1013). */
  send(channel: string, type: string, payload: Payload, id?: string, extra?: Payload): void;
  /** Sends an encoded frame, so that one text can go to many. */
  sendFrame(frame: string): void;
  /** `system/error` in answer to a message (contract 02 §1.3-1.5). */
  sendError(message: string, error: string, id?: string, extra?: Payload): void;
  /**
   * Subscribes a producer to backpressure: `pause` is called when more than `high` bytes wait, `resume` when fewer
   * than `low` do (contract 02 §1.7). Returns the unsubscribe function.
   */
  follow(limits: WatermarkLimits): () => void;
  /**
   * Pings the client: false when nothing arrives within `ms` milliseconds. The socket stays open all the same; closing
   * it is left to the keep-alive. Always true where the runtime keeps sockets alive.
   */
  answers(ms: number): Promise<boolean>;
  /**
   * Pings the client, and calls back once its answer proves that everything sent before has arrived. A client that stays
   * silent for 10 s is dropped (contract 04 §5.4a). While one ping waits for its answer, others share the next one.
   */
  probe(answered: () => void): void;
  /** The client answered a ping; `data` is what it repeats. */
  ponged(data?: unknown): void;
}

/**
 * One channel of the socket: a file in `handlers/channels/` and a line in its table. Order, grants, limits, errors and
 * cleanup are the same for every channel and handled around it, in `lib/socket`.
 */
export interface Channel {
  /** Grant that every message needs; absent for channels open to any live session. */
  grant?: { name: string; label: string };
  /** Allows messages over 4 MiB, up to the socket's limit, if they need the grant. */
  large?: boolean;
  /** Allows payloads of any depth in a message of at most 256 KiB: it neither keeps nor forwards them. */
  anyDepth?: boolean;
  /**
   * Handles one message. A promise delays later messages of this channel on this socket, and nothing else.
   * Only called while the connection is open and granted. `text` is the raw frame, for handlers that forward it.
   */
  message(connection: Connection, message: Message, text: string): void | Promise<void>;
  /** True if a queued message is handled even after its socket closed (its answers are dropped). */
  outlivesSocket?(head: EnvelopeHead): boolean;
  /** Handles a message whose `payload` is not an object. Without this, `message` gets `{}` (contract 02 §1.4). */
  badPayload?(connection: Connection, message: Message): void;
  /** The handler threw or rejected: sends the channel's own error envelope. Without this, `system/error` is sent. */
  failed?(connection: Connection, message: Message): void;
  /**
   * A message came without the grant: sends what clients need beyond the `system/error`. One over 4 KiB has not been
   * parsed, and has an empty payload here.
   */
  denied?(connection: Connection, message: Message, text: string): void;
  /** False for messages that need no grant. */
  needsGrant?(head: EnvelopeHead): boolean;
  /** State of the channel on a connection, for `GET /relay/devices` (contract 09 §2). */
  describe?(connection: Connection): Payload;
  /** The socket has authenticated, or, when `slept`, was restored with a process that slept (edge). */
  opened?(connection: Connection, slept: boolean): void | Promise<void>;
  /** The grant ended while the socket stays open. */
  grantLost?(connection: Connection): void;
  /** The socket has closed or is about to: frees what the channel holds for it. Called once, even without messages. */
  closed?(connection: Connection): void | Promise<void>;
}

/** The channel table, in the order of cleanup when a socket ends (contract 02 §1.8). */
export type Channels = Readonly<Record<string, Channel>>;

type Entries = readonly (readonly [name: string, channel: Channel])[];

/** The channel table, with the channels that every socket visits selected once. */
export interface ChannelTable {
  readonly byName: Channels;
  readonly withGrant: Entries;
  readonly withOpened: Entries;
  readonly withClosed: Entries;
  readonly withDescription: Entries;
}

export function createChannelTable(channels: Channels): ChannelTable {
  const entries = Object.entries(channels);
  return {
    byName: channels,
    withGrant: entries.filter(([, channel]) => channel.grant),
    withOpened: entries.filter(([, channel]) => channel.opened),
    withClosed: entries.filter(([, channel]) => channel.closed),
    withDescription: entries.filter(([, channel]) => channel.describe),
  };
}
