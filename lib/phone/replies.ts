import type { Reply, StoredReply } from '../../storage/schema.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { Payload } from '../socket/envelope.ts';
import { readReply, sizeOf } from './reply.ts';
import { type Rows, saveLater } from './rows.ts';

const MAX_RECORDS = 100;
const MAX_BYTES = 16 * 1024 * 1024;
const KEPT = 86_400_000;
const MAX_POLLS = 64;

/** Which replies a reader wants. Every condition that is given must hold, of chat and message one of the two. */
export interface Wanted {
  chatId?: string;
  /** The message that was answered. */
  replyTo?: string;
  /** Epoch ms: what had arrived before is somebody else's. */
  since?: number;
}

export interface Poll {
  /** How long to wait for the first one, ms. */
  timeout: number;
  /** The reader's own end: one that hung up gets, and takes, nothing. */
  signal?: AbortSignal;
  wanted?: Wanted;
}

interface Waiter {
  wanted?: Wanted;
  settle(replies: Reply[]): void;
}

export type Replies = ReturnType<typeof createReplies>;

/** What phones have answered until the agent's side reads it (contract 04 §5.5). Survives a restart. */
export function createReplies({ rows, clock, log }: { rows: Rows<StoredReply>; clock: Clock; log: Log }) {
  let records: readonly StoredReply[] = rows.loaded;
  const waiters = new Set<Waiter>();
  let stopped = false;

  function prune(): void {
    const now = clock.now();
    let kept = records.filter(({ arrived }) => now - arrived <= KEPT).slice(-MAX_RECORDS);
    let bytes = kept.reduce((sum, record) => sum + record.bytes, 0);
    while (bytes > MAX_BYTES) {
      bytes -= kept[0]?.bytes ?? 0;
      kept = kept.slice(1);
    }
    if (kept.length !== records.length) records = kept;
  }

  /** Takes out what a reader wants. On disk it goes only after the answer: a crash in between must not lose it. */
  function take(wanted: Wanted | undefined): Reply[] {
    prune();
    const taken = records.filter((record) => isWanted(record, wanted));
    if (taken.length === 0) return [];
    records = records.filter((record) => !taken.includes(record));
    clock.after(0, () => void saveLater(rows, records, log));
    return taken.map(({ reply }) => reply);
  }

  /** Gives what is there to those who wait: the one that asks for something particular before the others. */
  function serve(): void {
    for (const waiter of [...waiters].sort((a, b) => Number(!a.wanted) - Number(!b.wanted))) {
      const replies = take(waiter.wanted);
      if (replies.length > 0) waiter.settle(replies);
    }
  }

  return {
    /**
     * Keeps a `proactive.reply`. Resolves with its id once it is stored, and with undefined when it is none; one that
     * is still kept is not kept twice. Rejects, and keeps nothing, when it cannot be stored.
     */
    async add(payload: Payload): Promise<Reply | undefined> {
      const reply = readReply(payload, clock.now());
      if (!reply) return undefined;
      prune();
      if (records.some((record) => record.reply.message_id === reply.message_id)) return reply;
      const record: StoredReply = { seq: rows.next(), reply, arrived: clock.now(), bytes: sizeOf(reply) };
      records = [...records, record];
      prune();
      try {
        await rows.save(records);
      } catch (error) {
        records = records.filter((other) => other !== record);
        throw error;
      }
      serve();
      return reply;
    },

    /** All that is wanted, in order of arrival: at once when there is any, else the first that comes in time. */
    poll({ timeout, signal, wanted }: Poll): Promise<Reply[]> {
      if (signal?.aborted) return Promise.resolve([]);
      const present = take(wanted);
      if (present.length > 0 || timeout <= 0 || stopped) return Promise.resolve(present);
      return new Promise((resolve) => {
        let cancel: Cancel = () => {};
        const left = () => waiter.settle([]);
        const waiter: Waiter = {
          wanted,
          settle(replies) {
            waiters.delete(waiter);
            cancel();
            signal?.removeEventListener('abort', left);
            resolve(replies);
          },
        };
        cancel = clock.after(timeout, left);
        signal?.addEventListener('abort', left);
        waiters.add(waiter);
        if (waiters.size > MAX_POLLS) waiters.values().next().value?.settle([]);
      });
    },

    /** Polls that wait now. */
    waiting: (): number => waiters.size,

    /** Answers every poll that waits with nothing; resolves when the store is as it should be. */
    async stop(): Promise<void> {
      stopped = true;
      for (const waiter of [...waiters]) waiter.settle([]);
      await saveLater(rows, records, log);
    },
  };
}

function isWanted({ reply, arrived }: StoredReply, wanted: Wanted | undefined): boolean {
  if (!wanted) return true;
  const { chatId, replyTo, since } = wanted;
  if (since !== undefined && arrived < since) return false;
  if (chatId === undefined && replyTo === undefined) return true;
  return (chatId !== undefined && reply.chat_id === chatId) || (replyTo !== undefined && reply.reply_to === replyTo);
}
