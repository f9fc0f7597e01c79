import type { Connection } from './connection.ts';
import type { Message } from './envelope.ts';

/**
 * One channel of the socket: a file in `handlers/channels/` and a line in its table. Everything that is the same for
 * all of them (order, grants, limits, errors, cleanup) is done around it, in `lib/socket`.
 */
export interface Channel {
  /** The grant every message needs; none for channels that a live session may always use. */
  grant?: { name: string; label: string };
  /** Messages of more than 4 MiB are allowed, up to the 40 MiB of the socket. */
  large?: boolean;
  /**
   * Handles one message. A promise delays later messages of this channel on this socket, and nothing else.
   * Only called while the connection is open and the grant is there. `text` is the frame as it came, for what is to
   * be handed on unread.
   */
  message(connection: Connection, message: Message, text: string): void | Promise<void>;
  /** Messages that are handled even when the socket went while they waited in line (their answers go nowhere). */
  outlivesSocket?(message: Message): boolean;
  /**
   * A `payload` that is no object. Without this the channel is handed `{}` (contract 02 §1.4).
   */
  badPayload?(connection: Connection, message: Message): void;
  /** The handler threw or rejected: says so in the channel's own error envelope. Without this `system/error` does. */
  failed?(connection: Connection, message: Message): void;
  /** A message came without the grant: says more than `system/error` does, where the clients need it. */
  denied?(connection: Connection, message: Message, text: string): void;
  /** Some messages need no grant. */
  needsGrant?(message: Message): boolean;
  /** The socket has authenticated, or is taken up again with a process that slept (edge): `slept` tells which. */
  opened?(connection: Connection, slept: boolean): void | Promise<void>;
  /** The grant ended while the socket stays open. */
  grantLost?(connection: Connection): void;
  /** The socket is gone or about to go: frees what the channel holds for it. Called once, also without any message. */
  closed?(connection: Connection): void | Promise<void>;
}

/** The channel table: in this order channels are cleaned up when a socket ends (contract 02 §1.8). */
export type Channels = Readonly<Record<string, Channel>>;

type Entries = readonly (readonly [name: string, channel: Channel])[];

/** The channel table, with those channels picked out once that every socket has to go through. */
export interface ChannelTable {
  readonly byName: Channels;
  readonly withGrant: Entries;
  readonly withOpened: Entries;
  readonly withClosed: Entries;
}

export function tableOf(channels: Channels): ChannelTable {
  const entries = Object.entries(channels);
  return {
    byName: channels,
    withGrant: entries.filter(([, channel]) => channel.grant),
    withOpened: entries.filter(([, channel]) => channel.opened),
    withClosed: entries.filter(([, channel]) => channel.closed),
  };
}
