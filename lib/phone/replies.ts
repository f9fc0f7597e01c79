import type { Reply, StoredReply } from '../../storage/schema.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { Payload } from '../socket/envelope.ts';
import type { PhoneHistory } from './history.ts';
import { readReply, sizeOf } from './reply.ts';
import { type Rows, saveLater } from './rows.ts';

const MAX_RECORDS = 100;
const MAX_BYTES = 16 * 1024 * 1024;
/** How long a reply is kept, milliseconds. */
const RETENTION = 86_400_000;
const MAX_POLLS = 64;

/** Selects replies: every given condition must hold; of chat and message, one is enough. */
export interface ReplyFilter {
  chatId?: string;
  /** The message that was answered. */
  replyTo?: string;
  /** Epoch milliseconds: excludes replies that arrived before. */
  since?: number;
}

export interface Poll {
  /** How long to wait for the first reply, milliseconds. */
  timeout: number;
  /** Aborted when the reader leaves: it then takes no replies. */
  signal?: AbortSignal;
  wanted?: ReplyFilter;
  /** Asked again before a reply is handed to a poll that waits. */
  mayRead?(): boolean;
}

interface Waiter extends Pick<Poll, 'wanted' | 'mayRead'> {
  settle(replies: Reply[]): void;
}

export type Replies = ReturnType<typeof createReplies>;

export interface RepliesParts {
  rows: Rows<StoredReply>;
  clock: Clock;
  log: Log;
  /** A new reply is stored, and a reader has taken one. */
  history: Pick<PhoneHistory, 'reply' | 'hasReply' | 'forget' | 'taken' | 'save'>;
}

/** Replies of phones until the agent's side reads them (contract 04 §5.5). They survive a restart. */
export function createReplies({ rows, clock, log, history }: RepliesParts) {
  let records: readonly StoredReply[] = rows.loaded;
  const waiters = new Set<Waiter>();
  let stopped = false;

  function prune(): void {
    const now = clock.now();
    let kept = records.filter(({ arrived }) => now - arrived <= RETENTION).slice(-MAX_RECORDS);
    let bytes = kept.reduce((sum, record) => sum + record.bytes, 0);
    while (bytes > MAX_BYTES) {
      bytes -= kept[0]?.bytes ?? 0;
      kept = kept.slice(1);
    }
    if (kept.length !== records.length) records = kept;
  }

  /** Removes the replies that a reader wants; from the store only after they are sent: a crash must not lose them. */
  function take(wanted: ReplyFilter | undefined): Reply[] {
    prune();
    const taken = records.filter((record) => isWanted(record, wanted));
    if (taken.length === 0) return [];
    records = records.filter((record) => !taken.includes(record));
    for (const { reply } of taken) history.taken(reply.message_id);
    clock.after(0, () => {
      void saveLater(rows, records, log);
      void history.save();
    });
    return taken.map(({ reply }) => reply);
  }

  /** Hands replies to waiting polls: those with a filter first. */
  function serve(): void {
    for (const waiter of [...waiters].sort((a, b) => Number(!a.wanted) - Number(!b.wanted))) {
      const replies = waiter.mayRead?.() === false ? undefined : take(waiter.wanted);
      if (!replies || replies.length > 0) waiter.settle(replies ?? []);
    }
  }

  return {
    /**
     * Keeps a `proactive.reply`. Resolves with it once it is stored, or with undefined when it has no text; a repeated id
     * is kept once, also when a reader has taken it already. Rejects, and keeps nothing, when it cannot be stored.
     */
    async add(payload: Payload): Promise<Reply | undefined> {
      const reply = readReply(payload, clock.now());
      if (!reply) return undefined;
      prune();
      if (records.some((record) => record.reply.message_id === reply.message_id)) return reply;
      if (history.hasReply(reply)) return reply;
      const record: StoredReply = { seq: rows.next(), reply, arrived: clock.now(), bytes: sizeOf(reply) };
      records = [...records, record];
      prune();
      const stored = rows.save(records);
      history.reply(reply);
      const recorded = history.save();
      try {
        await stored;
      } catch (error) {
        records = records.filter((other) => other !== record);
        history.forget(reply.message_id);
        throw error;
      }
      await recorded;
      serve();
      return reply;
    },

    /** The wanted replies in order of arrival: at once if there are any, else the first one within the timeout. */
    poll({ timeout, signal, wanted, mayRead }: Poll): Promise<Reply[]> {
      if (signal?.aborted) return Promise.resolve([]);
      const present = take(wanted);
      if (present.length > 0 || timeout <= 0 || stopped) return Promise.resolve(present);
      return new Promise((resolve) => {
        let cancel: Cancel = () => {};
        const abandon = () => waiter.settle([]);
        const waiter: Waiter = {
          wanted,
          mayRead,
          settle(replies) {
            waiters.delete(waiter);
            cancel();
            signal?.removeEventListener('abort', abandon);
            resolve(replies);
          },
        };
        cancel = clock.after(timeout, abandon);
        signal?.addEventListener('abort', abandon);
        waiters.add(waiter);
        if (waiters.size > MAX_POLLS) waiters.values().next().value?.settle([]);
      });
    },

    /** How many polls wait. */
    waiting: (): number => waiters.size,

    /** Answers every waiting poll with nothing; resolves when the store is up to date. */
    async stop(): Promise<void> {
      stopped = true;
      for (const waiter of [...waiters]) waiter.settle([]);
      await saveLater(rows, records, log);
    },
  };
}

function isWanted({ reply, arrived }: StoredReply, wanted: ReplyFilter | undefined): boolean {
  if (!wanted) return true;
  const { chatId, replyTo, since } = wanted;
  if (since !== undefined && arrived < since) return false;
  if (chatId === undefined && replyTo === undefined) return true;
  return (chatId !== undefined && reply.chat_id === chatId) || (replyTo !== undefined && reply.reply_to === replyTo);
}
