import type { MessageStanding, PhoneHistoryItem } from '../../storage/schema.ts';
import { asObject, type JsonObject } from '../kit/json.ts';
import { isStanding } from '../phone/custody.ts';
import type { MessageContent, MessageItem } from '../phone/history.ts';
import { readMessage } from '../phone/message.ts';
import type { PhoneMessaging } from '../phone/phone.ts';
import { MAX_ANSWERS } from '../phone/question.ts';
import { readReply } from '../phone/reply.ts';
import type { Op } from './frames.ts';
import type { Side } from './side.ts';

const itemKey = (id: string) => `item:${id}`;
const replyKey = (id: string) => `reply:${id}`;

type ReplyItem = Extract<PhoneHistoryItem, { kind: 'reply' }>;

export interface ItemsDeps extends Omit<Side, 'isLinked'> {
  phone: PhoneMessaging;
  /** At home, true if content that arrives unsealed at the edge is not trusted. */
  isSealed(): boolean;
}

/**
 * The history of messages and replies, which belongs to home (contract 12 §2). The edge sends home each item that arrives
 * there, by an `item` op or by that of a reply, in the order of arrival. Home assigns it the next `seq` of its own history,
 * which returns as a `seq` op, and the edge then shows the item under that.
 */
export function createItems({ side, phone, outbox, log, isOn, isSealed }: ItemsDeps) {
  function offerItem(item: PhoneHistoryItem, standing: MessageStanding | undefined, isAgain: boolean): boolean {
    const { seq: _, home: __, state: ___, ...rest } = item;
    const content: JsonObject = { ...rest };
    for (const name of ['peer', 'away', 'asked', 'withdrawn', 'late', 'sealed']) delete content[name];
    const body = { item: content, ...(standing && { standing }), ...(isAgain && { again: true }) };
    return outbox.offer(itemKey(item.message_id), 'item', body);
  }

  /** Home has an item of the edge: sends the number that home has assigned. */
  function numbered(kind: PhoneHistoryItem['kind'], id: string, ts: number, seq: number): void {
    if (side === 'home' && seq > 0) outbox.offer(`seq:${kind}:${id}`, 'seq', { kind, message_id: id, ts, seq });
  }

  function take({ item, standing, again }: JsonObject): Promise<unknown> | undefined {
    const given = asObject(item) ?? {};
    const isAgain = again === true;
    if (given.kind === 'reply' && typeof given.ts === 'number') {
      const reply = readReply(given, given.ts);
      if (reply) {
        const done = phone.shared.adoptReply(reply);
        numbered('reply', reply.message_id, reply.ts, phone.shared.replySeq(reply.message_id));
        return done;
      }
    }
    const content = readContent(given);
    if (!content || !isStanding(standing)) return void log.warn('the edge gave an item that cannot be read');
    const own = isSealed() ? { ...content, unsealed: true as const } : content;
    const { seq, done } = phone.shared.adopt(own, standing, isAgain);
    numbered('message', content.message_id, content.ts, seq);
    return done;
  }

  return {
    /** The edge has a message that home has never had. False if home cannot be sent more now. */
    given(item: MessageItem, standing: MessageStanding): boolean {
      return side === 'edge' && isOn() && offerItem(item, standing, false);
    },

    /** Adds the progress of a message to the op that hands it over, unless the other side may already have that. */
    advanced(id: string, standing: MessageStanding): boolean {
      const body = outbox.body(itemKey(id));
      return body?.standing !== undefined && outbox.amend(itemKey(id), { ...body, standing });
    },

    numbered,

    /** Applies an op of the other side in this turn; undefined if it is already done, or not about the history. */
    apply({ kind, body }: Pick<Op, 'kind' | 'body'>): Promise<unknown> | undefined {
      if (side === 'home' && kind === 'item') return take(body);
      if (side === 'home' || kind !== 'seq') return undefined;
      const { kind: of, message_id: id, ts, seq } = body;
      const isRead = (of === 'message' || of === 'reply') && typeof id === 'string' && typeof ts === 'number';
      if (isRead && Number.isSafeInteger(seq)) return phone.shared.numbered({ kind: of, id, ts, seq: seq as number });
      log.warn('home gave a number of an item that cannot be read');
    },

    /** Home has another state: it is offered the whole history of the edge again, and numbers the missing items. */
    resync(): void {
      if (side === 'home') return;
      void phone.shared.unnumber();
      for (const item of phone.shared.items()) {
        const waiting = item.kind === 'reply' ? (outbox.body(replyKey(item.message_id)) ?? lost(item)) : undefined;
        if (waiting) outbox.offer(replyKey(item.message_id), 'reply', waiting);
        else offerItem(item, item.kind === 'message' ? phone.shared.toldOf(item) : undefined, true);
      }
    },
  };
}

/** A reply that home cannot have had, since it is still unread here: the record of its op was damaged. */
const lost = ({ state, seq: _, home: __, kind: ___, title: ____, ...reply }: ReplyItem): JsonObject | undefined =>
  state === 'waiting' ? { reply: { ...reply, metadata: {} }, device: '' } : undefined;

/** The message of an op; undefined if it is malformed. */
function readContent(given: JsonObject): MessageContent | undefined {
  const { ts, question, answers } = given;
  if (typeof ts !== 'number') return undefined;
  try {
    const { message_id, chat_id, title, text, reply_to } = readMessage(given, ts);
    const isAnswers = Array.isArray(answers) && answers.every((answer) => typeof answer === 'string');
    return {
      message_id,
      chat_id,
      title,
      text,
      reply_to,
      ts,
      ...(question === true && { question }),
      ...(question === true && isAnswers && answers.length > 0 && { answers: answers.slice(0, MAX_ANSWERS) }),
    };
  } catch {
    return undefined;
  }
}
