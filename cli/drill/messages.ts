import { pause } from '../pause.ts';
import type { Stage } from './stage.ts';
import { createLog, missing, type Work } from './tally.ts';

/** Messages that may be under way at once: the relay keeps fifty for a phone that is away. */
const MAX_UNSEEN = 20;
/** Replies that may wait for their reader at once: the relay keeps a hundred. */
const MAX_UNREAD = 40;
/** Milliseconds. */
const PACE = 40;
const RETRY = 200;
/** Seconds. */
const LEASE = 3;

/** Where messages are shown and answered: the companion, or the app in a browser. */
export interface Reader {
  /** Replies to a message, and returns the id of the reply where it is known at once; null when it cannot reply now. */
  reply(messageId: string, text: string): string | null;
}

export type MessageWork = ReturnType<typeof createMessageWork>;

/** Messages to the phone, and its replies. Both are numbered in their text. */
export function createMessageWork(stage: Stage, reader: () => Reader | undefined) {
  let sent = 0;
  const confirmed = createLog();
  const arrived = createLog();
  const shown = createLog();
  let replies = 0;
  /** Numbers of replies by their ids, until the relay has acknowledged them. */
  const open = new Map<string, number>();
  const acknowledged = createLog();
  const received = createLog();
  /** Replies that were taken: the relay has answered to the acknowledgement of their lease. */
  const taken = createLog();
  let takenAgain = 0;

  const numberIn = (text: unknown): number | undefined => {
    const found = /^drill (?:message|reply) (\d+)$/.exec(String(text));
    return found ? Number(found[1]) : undefined;
  };

  /** Sends a message until the relay answers; always under the same id, by which it knows a repetition. */
  async function send(id: number, signal: AbortSignal): Promise<void> {
    const body = {
      message_id: `drill-${id}`,
      text: `drill message ${id}`,
      title: 'Drill',
      answers: ['Done', 'Not yet'],
    };
    while (!signal.aborted) {
      const answer = await stage.asOperator({ method: 'POST', path: '/phone/message', body });
      if (answer?.status === 200) {
        confirmed.add(id);
        return;
      }
      if (answer) stage.note(`POST /phone/message was answered with ${answer.status}`);
      await pause(RETRY, signal);
    }
  }

  async function sendAll(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (sent - shown.size < MAX_UNSEEN) await send(sent++, signal);
      await pause(PACE, signal);
    }
  }

  async function acknowledge(leaseId: string, ids: number[]): Promise<void> {
    // Not until an answer comes: without one the lease ends, and they come again.
    for (let attempt = 0; attempt < 3; attempt++) {
      const body = { lease_id: leaseId };
      const answer = await stage.asOperator({ method: 'POST', path: '/phone/replies/ack', body });
      if (!answer) continue;
      if (answer.body.taken === ids.length) for (const id of ids) taken.add(id);
      return;
    }
  }

  async function read(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const answer = await stage.asOperator({ path: `/phone/replies?timeout=1&lease=${LEASE}` });
      if (answer?.status !== 200) {
        await pause(RETRY, signal);
        continue;
      }
      const list = Array.isArray(answer.body.replies) ? answer.body.replies : [];
      const ids = list.flatMap((reply) => numberIn((reply as { text?: unknown }).text) ?? []);
      for (const id of ids) {
        if (taken.times(id) > 0) takenAgain++;
        received.add(id);
      }
      if (typeof answer.body.lease_id === 'string') await acknowledge(answer.body.lease_id, ids);
    }
  }

  const work: Work = {
    // The reader goes on while the rest settles, until its own end.
    run: sendAll,
    isSettled: () =>
      missing(sent, confirmed, shown).length === 0 &&
      open.size === 0 &&
      missing(replies, acknowledged, received).length === 0,
    tallies: () => [
      {
        kind: 'messages',
        sent,
        acknowledged: confirmed.size,
        repeated: arrived.again,
        lost: missing(sent, confirmed, shown).length,
        doubled: shown.again,
      },
      {
        kind: 'replies',
        sent: replies,
        acknowledged: acknowledged.size,
        repeated: received.again - takenAgain,
        lost: missing(replies, acknowledged, received).length,
        doubled: takenAgain,
      },
    ],
  };

  return {
    ...work,
    /** Reads replies until the signal. */
    read,
    arrived(messageId: string): void {
      const id = Number(/^drill-(\d+)$/.exec(messageId)?.[1]);
      if (Number.isInteger(id)) arrived.add(id);
    },
    shown(messageId: string, text: string): void {
      const id = numberIn(text);
      if (id === undefined) return;
      shown.add(id);
      if (replies - received.size >= MAX_UNREAD) return;
      const reply = reader()?.reply(messageId, `drill reply ${replies}`) ?? null;
      if (reply !== null) open.set(reply, replies++);
    },
    acknowledged(replyId: string): void {
      const id = open.get(replyId);
      open.delete(replyId);
      if (id !== undefined) acknowledged.add(id);
    },
  };
}
