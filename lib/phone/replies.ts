import type { Reply, StoredReply } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { createApplied } from '../kit/applied.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { HangUp } from '../kit/event.ts';
import type { Log } from '../log.ts';
import type { Closed, PhoneHistory } from './history.ts';
import { sizeOf } from './reply.ts';
import { type Rows, saveLater } from './rows.ts';

const MAX_RECORDS = 100;
const MAX_BYTES = 16 * 1024 * 1024;
/** Milliseconds for which a reply is stored. */
const RETENTION = 86_400_000;
const MAX_POLLS = 64;
/** Milliseconds that a socket may take to acknowledge a reply. As long as the shortest alarm of an object. */
const ACK_TIMEOUT = 60_000;

/** Selects replies. Every given condition must hold, except that either chat or message is enough. */
export interface ReplyFilter {
  chatId?: string;
  /** The message that was answered. */
  replyTo?: string;
  /** Epoch milliseconds: excludes replies that arrived before. */
  since?: number;
}

export interface Poll {
  /** Milliseconds to wait for the first reply. */
  timeout: number;
  /** Aborts when the reader disconnects, in which case it takes no replies. */
  signal?: HangUp;
  wanted?: ReplyFilter;
  /** Milliseconds after which unacknowledged replies return to the queue; absent to take them at once. */
  lease?: number;
  /** Checked again before a reply is handed to a waiting poll. */
  mayRead?(): boolean;
}

/** Replies on their way to a reader. */
export interface Handout {
  replies: Reply[];
  /** Id to acknowledge them with. Absent without a lease, and without replies. */
  leaseId?: string;
  /** Must be called: `isWhole` if the whole response was written, false if the connection ended before. */
  sent(isWhole: boolean): void;
}

interface Waiter extends Pick<Poll, 'wanted' | 'mayRead' | 'lease'> {
  settle(handout: Handout | Promise<Handout>): void;
}

/** Prefix of the lease ids of sockets. */
export const READER = 'reader:';

/** A socket that gets every reply until it closes. */
export interface Reader {
  /** Id of its leases. */
  id: string;
  /** Checked again before each reply. */
  mayRead(): boolean;
  give(reply: Reply): void;
  /** Closes the socket because it may no longer read, or has acknowledged nothing for too long. */
  end(reason: string): void;
}

const NOTHING: Handout = { replies: [], sent() {} };

export type Replies = ReturnType<typeof createReplies>;

export interface RepliesDeps {
  rows: Rows<StoredReply>;
  clock: Clock;
  log: Log;
  /** Gets new replies, and those that a reader has taken. */
  history: Pick<PhoneHistory, 'reply' | 'hasReply' | 'forget' | 'taken' | 'save'>;
}

/** Replies of phones, until the agent's side reads them (contract 04 §5.5). They survive a restart. */
export function createReplies({ rows, clock, log, history }: RepliesDeps) {
  let records: readonly StoredReply[] = rows.loaded;
  /** `seq` of replies whose response is being written to a reader without a lease. */
  const leaving = new Set<number>();
  /** By id, replies that are being stored: one that is sent again is acknowledged no earlier. */
  const storing = new Map<string, Promise<void>>();
  const waiters = new Set<Waiter>();
  /** Keyed by id, the one that has waited longest first. */
  const readers = new Map<string, Reader>();
  let stopped = false;
  /** One timer for all: serves waiting polls when the first lease ends. */
  let cancelEnd: Cancel = () => {};

  /** Takes the replies that match a reader's filter and that nobody else has; undefined if there are none. */
  function take(
    { wanted, lease }: Pick<Poll, 'wanted' | 'lease'>,
    now: number,
  ): Handout | Promise<Handout> | undefined {
    records = pruned(records, now);
    const handedOut = records.filter((record) => isFree(now)(record) && isWanted(record, wanted));
    if (handedOut.length === 0) return undefined;
    return lease === undefined ? give(handedOut) : lend(handedOut, now + lease);
  }

  /**
   * Without a lease, the reader owns replies once they are written, so that neither a crash nor a broken connection loses
   * them.
   */
  function give(handedOut: readonly StoredReply[]): Handout {
    for (const { seq } of handedOut) leaving.add(seq);
    let isOver = false;
    return {
      replies: handedOut.map(({ reply }) => reply),
      sent(isWhole) {
        if (isOver) return;
        isOver = true;
        for (const { seq } of handedOut) leaving.delete(seq);
        if (!isWhole) serve();
        else remove(({ seq }) => handedOut.some((other) => other.seq === seq)).catch(warn);
      },
    };
  }

  /** The lease is stored before the reader gets it, so that it can be acknowledged after a crash or a sleep. */
  async function lend(handedOut: readonly StoredReply[], until: number): Promise<Handout> {
    const id = bytesToHex(randomBytes(16));
    records = records.map((record) => (handedOut.includes(record) ? { ...record, lease: { id, until } } : record));
    awaitEnds(clock.now());
    await saveLater(rows, records, log);
    return {
      replies: handedOut.map(({ reply }) => reply),
      leaseId: id,
      sent(isWhole) {
        if (!isWhole) release(({ lease }) => lease?.id === id);
      },
    };
  }

  /** Ends leases, so that other readers get the replies. */
  function release(isReleased: (record: StoredReply) => boolean): void {
    if (!records.some(isReleased)) return;
    records = records.map((record) => (isReleased(record) ? { ...record, lease: undefined } : record));
    void saveLater(rows, records, log);
    serve();
  }

  const warn = (error: unknown) => log.warn(`a change could not be saved: ${describeError(error)}`);

  const save = (): Promise<unknown> => Promise.all([rows.save(records), history.save()]);
  const applied = createApplied({ clock, log, what: 'the replies are taken', save });

  /** Removes replies that readers have taken. Resolves with their number once that is stored. */
  async function remove(
    isTaken: (record: StoredReply) => boolean,
    store: () => Promise<unknown> = save,
  ): Promise<number> {
    const handedOut = records.filter(isTaken);
    records = records.filter((record) => !handedOut.includes(record));
    for (const { reply } of handedOut) history.taken(reply.message_id);
    // Even without any: an earlier removal may have failed.
    await store();
    return handedOut.length;
  }

  /** Hands replies to waiting polls, those with a filter first, then to sockets. */
  function serve(): void {
    const now = clock.now();
    for (const { id, end } of [...readers.values()]) {
      if (records.some(({ lease }) => lease?.id === id && lease.until <= now))
        end('a reply was not acknowledged in time');
    }
    for (const waiter of [...waiters].sort((a, b) => Number(!a.wanted) - Number(!b.wanted))) {
      const handout = waiter.mayRead?.() === false ? NOTHING : take(waiter, now);
      if (handout) waiter.settle(handout);
    }
    for (const reader of [...readers.values()]) read(reader, now);
    awaitEnds(now);
  }

  /** Sends a socket the replies that nobody has, once its lease is stored. */
  function read(reader: Reader, now: number): void {
    const handedOut = records.filter(isFree(now));
    if (handedOut.length === 0) return;
    if (!reader.mayRead()) {
      reader.end('no more replies for this session');
      return;
    }
    const lease = { id: reader.id, until: now + ACK_TIMEOUT };
    records = records.map((record) => (handedOut.includes(record) ? { ...record, lease } : record));
    void saveLater(rows, records, log).then(() => {
      for (const { seq, reply } of handedOut) {
        const isItsOwn = records.some((record) => record.seq === seq && record.lease === lease);
        if (isItsOwn && readers.get(reader.id) === reader) reader.give(reply);
      }
    });
  }

  const isFree =
    (now: number) =>
    ({ seq, lease }: StoredReply): boolean =>
      !leaving.has(seq) && !(lease && lease.until > now);

  /**
   * Replies become available again after their lease, for polls that already wait too. `now` is when the polls checked for
   * replies, so that a lease that has ended since is not missed.
   */
  function awaitEnds(now: number): void {
    cancelEnd();
    const ends = records.flatMap(({ lease }) => (lease && lease.until > now ? lease.until : []));
    if (waiters.size + readers.size > 0 && ends.length > 0) cancelEnd = clock.after(Math.min(...ends) - now, serve);
  }

  function isBuffered(messageId: string): boolean {
    records = pruned(records, clock.now());
    return records.some(({ reply }) => reply.message_id === messageId);
  }

  async function store(reply: Reply, lateReason?: Closed): Promise<void> {
    if (isBuffered(reply.message_id) || history.hasReply(reply)) return;
    const record: StoredReply = { seq: rows.next(), reply, arrived: clock.now(), bytes: sizeOf(reply) };
    records = [...records, record];
    records = pruned(records, clock.now());
    const [stored, recorded] = rows.batch(() => {
      const stored = rows.save(records);
      history.reply(reply, lateReason);
      return [stored, history.save()];
    });
    try {
      await stored;
    } catch (error) {
      records = records.filter(({ seq }) => seq !== record.seq);
      history.forget(reply.message_id);
      void history.save();
      throw error;
    }
    await recorded;
    serve();
  }

  return {
    /**
     * Stores a `proactive.reply`. Resolves once it is stored. A repeated id is stored once, even if a reader has already
     * taken it. `late` is for the history. Rejects, and stores nothing, on failure.
     */
    add(reply: Reply, lateReason?: Closed): Promise<void> {
      const { message_id: id } = reply;
      const stored = storing.get(id) ?? store(reply, lateReason).finally(() => storing.delete(id));
      storing.set(id, stored);
      return stored;
    },

    /** True if a reply with this id waits for a reader. */
    isBuffered,

    /** The matching replies in order of arrival: at once if there are any, else the first one within the timeout. */
    async poll({ timeout, signal, wanted, lease, mayRead }: Poll): Promise<Handout> {
      if (signal?.aborted) return NOTHING;
      const now = clock.now();
      const present = take({ wanted, lease }, now);
      if (present || timeout <= 0 || stopped) return present ?? NOTHING;
      return new Promise((resolve) => {
        let cancel: Cancel = () => {};
        const abandon = () => waiter.settle(NOTHING);
        const waiter: Waiter = {
          wanted,
          lease,
          mayRead,
          settle(handout) {
            waiters.delete(waiter);
            cancel();
            signal?.removeEventListener('abort', abandon);
            resolve(handout);
          },
        };
        cancel = clock.after(timeout, abandon);
        signal?.addEventListener('abort', abandon);
        waiters.add(waiter);
        if (waiters.size > MAX_POLLS) waiters.values().next().value?.settle(NOTHING);
        awaitEnds(now);
      });
    },

    /**
     * Acknowledges the replies of a lease, except those that another reader has taken or leased since. Resolves with their
     * number once that is stored.
     * @throws RelayError `unavailable` if they are taken, but that could not be stored.
     */
    acknowledge: (leaseId: string): Promise<number> => remove(({ lease }) => lease?.id === leaseId, applied.store),

    /** Somebody took a reply elsewhere. Resolves with 1 once that is stored, with 0 for an unknown reply. */
    take: (messageId: string): Promise<number> => remove(({ reply }) => reply.message_id === messageId),

    /** A socket has opened, or has survived a sleep with its leases. */
    read(reader: Reader): void {
      readers.set(reader.id, reader);
      serve();
    },

    /** A socket has closed: other readers get its unacknowledged replies. */
    unread(id: string): void {
      readers.delete(id);
      release(({ lease }) => lease?.id === id);
    },

    /** Releases the unacknowledged replies of all sockets that are no longer open. */
    settleReaders(): void {
      release(({ lease }) => lease?.id.startsWith(READER) === true && !readers.has(lease.id));
    },

    /** Acknowledges one reply of a socket, unless another reader has it since. Resolves once that is stored. */
    acknowledgeOne: (messageId: string, by: string): Promise<unknown> =>
      remove(({ reply, lease }) => reply.message_id === messageId && lease?.id === by),

    /** Number of waiting polls. */
    waiting: (): number => waiters.size,

    /** Answers every waiting poll without replies; resolves when the store is up to date. */
    async stop(): Promise<void> {
      stopped = true;
      for (const waiter of [...waiters]) waiter.settle(NOTHING);
      cancelEnd();
      applied.stop();
      await saveLater(rows, records, log);
    },
  };
}

function pruned(records: readonly StoredReply[], now: number): readonly StoredReply[] {
  let remaining = records.filter(({ arrived }) => now - arrived <= RETENTION).slice(-MAX_RECORDS);
  let bytes = remaining.reduce((sum, record) => sum + record.bytes, 0);
  while (bytes > MAX_BYTES) {
    bytes -= remaining[0]?.bytes ?? 0;
    remaining = remaining.slice(1);
  }
  return remaining;
}

function isWanted({ reply, arrived }: StoredReply, wanted: ReplyFilter | undefined): boolean {
  if (!wanted) return true;
  const { chatId, replyTo, since } = wanted;
  if (since !== undefined && arrived < since) return false;
  if (chatId === undefined && replyTo === undefined) return true;
  return (chatId !== undefined && reply.chat_id === chatId) || (replyTo !== undefined && reply.reply_to === replyTo);
}
