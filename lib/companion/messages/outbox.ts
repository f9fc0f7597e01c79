import type { Payload } from '../../socket/envelope.ts';

const CAPACITY = 100;

/** An answer of the person at this phone, as it goes out. */
export interface OutgoingReply {
  text: string;
  chat_id: string | null;
  reply_to: string | null;
  message_id: string;
  /** Epoch ms. */
  ts: number;
}

/** Replies that the relay has not acknowledged: they are sent again, under the same id, when it is there again. */
export interface Outbox {
  /** False when a hundred wait already. */
  add(reply: OutgoingReply): boolean;
  /** Takes out what `proactive.reply.ack` names; undefined for an id that does not wait. */
  acknowledge(payload: Payload): OutgoingReply | undefined;
  /** The oldest first. */
  waiting(): readonly OutgoingReply[];
}

export function createOutbox(): Outbox {
  const replies = new Map<string, OutgoingReply>();
  return {
    add(reply) {
      if (replies.size >= CAPACITY) return false;
      replies.set(reply.message_id, reply);
      return true;
    },
    acknowledge({ client_msg_id: id }) {
      const reply = typeof id === 'string' ? replies.get(id) : undefined;
      if (reply) replies.delete(reply.message_id);
      return reply;
    },
    waiting: () => [...replies.values()],
  };
}
