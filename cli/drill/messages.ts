import { pause } from '../pause.ts';
import type { Inbox } from './inbox.ts';
import type { Stage } from './stage.ts';
import { createLog, missing, tallyOf, type Work } from './tally.ts';

const SENDERS = 3;
/**
 * Messages of one kind, to the phone or to the page, that may be under way at once: both kinds together must stay below the
 * fifty that the relay keeps for a phone that is away.
 */
export const MAX_UNSEEN = 20;
/** Replies that may wait for their reader at once: the relay keeps a hundred. */
const MAX_UNREAD = 40;
/** Lost messages that are explained. */
const MAX_EXPLAINED = 5;
/** Milliseconds. */
const PACE = 40;
const RETRY = 200;

/** The phone. */
export interface Reader {
  /** Replies to a message, and returns the id of the reply; null when it cannot reply now. */
  reply(messageId: string, text: string): string | null;
}

/** Messages to the phone, and its replies. Both are numbered in their text. While `isHeld`, there are no further ones. */
export function createMessageWork(
  stage: Stage,
  inbox: Inbox,
  reader: () => Reader | undefined,
  isHeld: () => boolean = () => false,
) {
  let sent = 0;
  const confirmed = createLog();
  const arrived = createLog();
  const shown = createLog();
  let replies = 0;
  /** Numbers of replies by their ids, until the relay has acknowledged them. */
  const open = new Map<string, number>();
  const acknowledged = createLog();
  const replied = inbox.from('drill reply');
  const { received } = replied;

  const numberIn = (text: string): number => Number(/^drill message (\d+)$/.exec(text)?.[1]);

  async function sendNext(signal: AbortSignal): Promise<void> {
    const id = sent++;
    const body = {
      message_id: `drill-${id}`,
      text: `drill message ${id}`,
      title: 'Drill',
      answers: ['Done', 'Not yet'],
    };
    if (await deliver(stage, body, signal)) confirmed.add(id);
  }

  async function sendAll(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (sent - shown.size < MAX_UNSEEN && !isHeld()) await sendNext(signal);
      await pause(PACE, signal);
    }
  }

  const work: Work = {
    run: async (signal) => void (await Promise.all(Array.from({ length: SENDERS }, () => sendAll(signal)))),
    isSettled: () =>
      missing(sent, confirmed, shown).length === 0 &&
      open.size === 0 &&
      missing(replies, acknowledged, received).length === 0,
    tallies: () => [
      tallyOf('messages', sent, { confirmed, arrived: shown }, { repeated: arrived.again, doubled: shown.again }),
      tallyOf('replies', replies, { confirmed: acknowledged, arrived: received }, replied),
    ],
  };

  return {
    ...work,
    /** Messages and replies so far. */
    count: () => sent + replies,
    /** Notes what the relay says of messages that are missing. */
    async explain(): Promise<void> {
      const lost = missing(sent, confirmed, shown);
      if (lost.length === 0) return;
      const newest = Number((await stage.asOperator({ path: '/phone/history?limit=1' }))?.body.latest);
      const answer = await stage.asOperator({ path: `/phone/history?limit=200&since=${Math.max(0, newest - 200)}` });
      const items = Array.isArray(answer?.body.items) ? (answer.body.items as Record<string, unknown>[]) : [];
      for (const id of lost.slice(0, MAX_EXPLAINED)) {
        const item = items.find((one) => one.message_id === `drill-${id}`);
        stage.note(`message ${id} was acknowledged, and never shown; in the history it is ${item?.state ?? 'missing'}`);
      }
    },
    arrived(messageId: string): void {
      const id = Number(/^drill-(\d+)$/.exec(messageId)?.[1]);
      if (Number.isInteger(id)) arrived.add(id);
    },
    shown(messageId: string, text: string): void {
      const id = numberIn(text);
      if (Number.isNaN(id)) return;
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

/** Sends a message until the relay answers; always under the same id, by which it knows a repetition. False at the signal. */
export async function deliver(stage: Stage, body: object, signal: AbortSignal): Promise<boolean> {
  while (!signal.aborted) {
    const answer = await stage.asOperator({ method: 'POST', path: '/phone/message', body });
    if (answer?.status === 200) return true;
    if (answer) stage.note(`POST /phone/message was answered with ${answer.status}`);
    await pause(RETRY, signal);
  }
  return false;
}
