import type { Session } from '../sessions/session.ts';
import type { Message, Payload } from './envelope.ts';
import type { EnvelopeHead } from './envelope-head.ts';
import type { Caller } from './transport.ts';
import type { WatermarkLimits } from './watermark.ts';

/** An authenticated socket as seen by its channels. */
export interface Connection {
  readonly id: string;
  readonly caller: Caller;
  readonly session: Session;
  /** True if the client supports the typed chat stream. */
  readonly typedStream: boolean;
  readonly isOpen: boolean;
  /** True if a message sent now can still reach the client, as far as this side knows. */
  readonly isWritable: boolean;
  /** Bytes waiting to be sent. */
  readonly unsent: number;
  /** Sends one envelope; does nothing on a closed connection. Closes a client that reads too slowly (1013). */
  send(channel: string, type: string, payload: Payload, id?: string, extra?: Payload): void;
  /** Sends an encoded frame, so that one text can go to many clients. */
  sendFrame(frame: string): void;
  /** `system/error` in answer to a message (contract 02 §1.3-1.5). */
  sendError(message: string, error: string, id?: string, extra?: Payload): void;
  /**
   * Subscribes a producer to backpressure: `pause` is called when more than `high` bytes wait, `resume` when fewer
   * than `low` do (contract 02 §1.7). Returns the unsubscribe function.
   */
  follow(limits: WatermarkLimits): () => void;
  /**
   * Pings the client; false if nothing arrives within `ms` milliseconds. The socket stays open even then, since closing it
   * is the keep-alive's task. Always true on a runtime that keeps sockets alive itself.
   */
  answers(ms: number): Promise<boolean>;
  /**
   * Pings the client, and calls back once its answer proves that everything sent before has arrived. Drops a client that
   * stays silent for 10 s (contract 04 §5.4a). While one ping is unanswered, later calls share the next one.
   */
  probe(answered: () => void): void;
  /** The client answered a ping; `data` is the ping's. */
  ponged(data?: unknown): void;
}

/**
 * One channel of the socket: a file in `handlers/channels/` and a line in its table. Order, grants, limits, errors and
 * cleanup are the same for every channel, and handled in `lib/socket`.
 */
export interface Channel {
  /** Grant that every message needs; absent for channels open to any live session. */
  grant?: { name: string; label: string };
  /** Allows messages over 4 MiB, up to the socket's limit, if they need the grant. */
  large?: boolean;
  /** Allows payloads of any depth in a message of at most 256 KiB, for a channel that neither stores nor forwards them. */
  anyDepth?: boolean;
  /**
   * Handles one message. A promise delays later messages of this channel on this socket, and nothing else. Called only while
   * the connection is open and granted. `text` is the raw frame, for handlers that forward it.
   */
  message(connection: Connection, message: Message, text: string): void | Promise<void>;
  /** True if a queued message is handled even after its socket closed (its answers are dropped). */
  outlivesSocket?(head: EnvelopeHead): boolean;
  /** Handles a message whose `payload` is not an object. If absent, `message` gets `{}` (contract 02 §1.4). */
  badPayload?(connection: Connection, message: Message): void;
  /** The handler threw or rejected: sends the channel's own error envelope. If absent, `system/error` is sent. */
  failed?(connection: Connection, message: Message): void;
  /**
   * A message came without the grant: sends what clients need besides the `system/error`. A message over 4 KiB was not
   * parsed, and has an empty payload here.
   */
  denied?(connection: Connection, message: Message, text: string): void;
  /** False for messages that need no grant. */
  needsGrant?(head: EnvelopeHead): boolean;
  /** State of the channel on a connection, for `GET /relay/devices` (contract 09 §2). */
  describe?(connection: Connection): Payload;
  /** The socket has authenticated, or, with `slept`, was restored after a sleep of the process (edge). */
  opened?(connection: Connection, slept: boolean): void | Promise<void>;
  /** The grant ended while the socket stays open. */
  grantLost?(connection: Connection): void;
  /** The socket has closed or is about to: releases the channel's state for it. Called once, even without messages. */
  closed?(connection: Connection): void | Promise<void>;
}

/** The channel table, in the order of cleanup when a socket ends (contract 02 §1.8). */
export type Channels = Readonly<Record<string, Channel>>;

type Entries = readonly (readonly [name: string, channel: Channel])[];

/** The channel table, with preselected lists of the channels that every socket visits. */
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
