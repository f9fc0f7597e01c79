import * as v from 'valibot';
import type { Reply, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { asObject, parseObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { ALIVE_PING, ALIVE_PONG } from '../socket/envelope.ts';
import type { SocketEvents, Transport } from '../socket/transport.ts';
import { READER, type Replies } from './replies.ts';

const leaseOf = (socket: string): string => READER + socket;

/** Maximum open sockets. One more closes the oldest. */
const MAX_READERS = 64;
const KEY = 'readers';
const Stored = v.object({
  readers: v.fallback(v.record(v.string(), v.nullable(v.string())), {}),
  ends: v.fallback(v.record(v.string(), v.number()), {}),
});
const TOKEN_EXPIRED = 'operator token expired';

/** The reader that opened a socket. */
interface Owner {
  /** The device's family; null for the operator. */
  family: string | null;
  /** Expiry of the operator's token, epoch seconds; null for a device, and for an operator without a token (Node). */
  until: number | null;
}

export interface ReplyReadersDeps {
  replies: Pick<Replies, 'read' | 'unread' | 'acknowledgeOne' | 'settleReaders'>;
  sessions: Pick<Sessions, 'byFamily' | 'onEnd'>;
  /** The grant that a device needs to get replies. */
  grant: string;
  clock: Clock;
  log: Log;
  /** Store of the family of each socket; absent if the process lives as long as its sockets. */
  store?: Store<'phone-subscribers'>;
}

/**
 * Sockets on which agents wait for replies (contract 12 §6). Each reply is one frame, consumed once acknowledged. Without
 * replies nothing is sent, so that an object at the edge sleeps with the sockets open.
 */
export async function openReplyReaders({ replies, sessions, grant, clock, log, store }: ReplyReadersDeps) {
  /** Keyed by socket id, oldest first. */
  const open = new Map<string, Owner & { socket: Transport; cancel: Cancel }>();
  /** The sockets that were open before a sleep. */
  const record = v.parse(Stored, asObject(await store?.getItem(KEY)) ?? {});
  const stored = new Map(Object.entries(record.readers));
  const ends = new Map(Object.entries(record.ends));

  function save(): void {
    const readers = Object.fromEntries([...open].map(([id, { family }]) => [id, family]));
    const ends = Object.fromEntries([...open].flatMap(([id, { until }]) => (until === null ? [] : [[id, until]])));
    store
      ?.setItem(KEY, { sockets: [], readers, ends })
      .catch((error) => log.warn(`the readers of replies could not be saved: ${describeError(error)}`));
  }

  function mayRead({ family, until }: Owner): boolean {
    if (family === null) return until === null || seconds(clock) < until;
    const session = sessions.byFamily(family);
    return session !== undefined && isGranted(session.grants, grant, seconds(clock));
  }

  function end(id: string, code: number, reason: string): void {
    open.get(id)?.socket.close(code, reason);
    closed(id);
  }

  function closed(id: string): void {
    open.get(id)?.cancel();
    if (!open.delete(id)) return;
    replies.unread(leaseOf(id));
    save();
  }

  sessions.onEnd(({ family }) => {
    // A refresh also ends a session, but at once replaces it by another of the same family.
    queueMicrotask(() => {
      if (sessions.byFamily(family)) return;
      for (const [id, reader] of [...open]) if (reader.family === family) end(id, 4401, 'session revoked');
    });
  });

  function events(socket: Transport, owner: Owner): SocketEvents {
    const { id } = socket;
    const { until } = owner;
    const left = until === null ? null : Math.max(0, Math.ceil((until - seconds(clock)) * 1000));
    const cancel = left === null ? () => {} : clock.after(left, () => end(id, 4401, TOKEN_EXPIRED));
    open.set(id, { socket, ...owner, cancel });
    replies.read({
      id: leaseOf(id),
      mayRead: () => mayRead(owner),
      give: (reply: Reply) => socket.send(JSON.stringify({ type: 'reply', ...reply })),
      end: (reason) => end(id, 1008, reason),
    });
    return {
      message(text) {
        if (text === ALIVE_PING) return socket.send(ALIVE_PONG);
        const { type, message_id: messageId } = parseObject(text) ?? {};
        if (type !== 'ack' || typeof messageId !== 'string') return end(id, 1008, 'not an ack {message_id}');
        replies.acknowledgeOne(messageId, leaseOf(id)).catch((error) => {
          log.error(`an acknowledged reply could not be removed: ${describeError(error)}`);
          end(id, 1011, 'the acknowledgement could not be stored');
        });
      },
      drained() {},
      pinged() {},
      closed: () => closed(id),
    };
  }

  return {
    /**
     * Opens a reader with a session, or for the operator, whose token expires at `until` (epoch seconds; null without one).
     */
    open(socket: Transport, session: Session | undefined, until: number | null): SocketEvents {
      const [oldest] = open.keys();
      if (oldest !== undefined && open.size >= MAX_READERS) end(oldest, 1013, 'too many readers of replies');
      const own = events(socket, { family: session?.family ?? null, until: session ? null : until });
      save();
      return own;
    },

    /** Restores a socket that survived a sleep (edge). */
    restore(socket: Transport): SocketEvents | undefined {
      const family = stored.get(socket.id);
      const until = ends.get(socket.id) ?? null;
      // Earlier versions stored no expiry of an operator's token.
      if (family === undefined || (family === null && until === null)) socket.close(1012, 'the relay was asleep');
      else if (mayRead({ family, until })) return events(socket, { family, until });
      else socket.close(4401, family === null ? TOKEN_EXPIRED : 'session revoked');
      return undefined;
    },

    /** The relay listens: releases the unacknowledged replies of sockets of the last process. */
    start: replies.settleReaders,

    /** Every socket that survived the sleep is restored: releases the replies of the others (edge). */
    restored: replies.settleReaders,

    stop(): void {
      for (const id of [...open.keys()]) end(id, 1001, 'the relay is stopping');
    },

    size: (): number => open.size,
  };
}
