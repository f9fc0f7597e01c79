import type { Payload } from '../../socket/envelope.ts';

/** A message of the agent, as this phone keeps it (contract 04 §5.2). */
export interface ReceivedMessage {
  messageId: string;
  chatId: string | null;
  title: string | null;
  text: string;
  surfacing: string | null;
  replyTo: string | null;
  /** Epoch ms at which the relay accepted it; null where it does not say. */
  sentAt: number | null;
  /** It waited on the relay until this phone subscribed. */
  queued: boolean;
}

const MAX_TEXT = 64 * 1024;

/** Reads `phone.message`. Null for what a phone's decoder refuses: an object or an array in a scalar's place. */
export function readReceived(payload: Payload): ReceivedMessage | null {
  const { message_id: messageId, text, sent_at: sentAt } = payload;
  const labels = [payload.chat_id, payload.title, payload.surfacing, payload.reply_to].map((value) => value ?? null);
  if (typeof messageId !== 'string' || messageId === '' || typeof text !== 'string') return null;
  if (labels.some((value) => value !== null && typeof value !== 'string')) return null;
  const [chatId, title, surfacing, replyTo] = labels as (string | null)[];
  return {
    messageId,
    chatId: chatId ?? null,
    title: title ?? null,
    text: text.slice(0, MAX_TEXT),
    surfacing: surfacing ?? null,
    replyTo: replyTo ?? null,
    sentAt: Number.isSafeInteger(sentAt) ? (sentAt as number) : null,
    queued: payload.queued_delivery === true,
  };
}

/** Where a message shows: as a notification, nowhere but in its thread, or in the thread that is open. */
export type Surface = 'notification' | 'silent' | 'open';

/** The surfacing rules (contract 04 §5.3); `isThreadOpen` tells whether somebody looks at a thread right now. */
export function surfaceOf({ surfacing }: ReceivedMessage, isThreadOpen: boolean): Surface {
  if (surfacing === 'inbox') return 'silent';
  return surfacing === 'session' && isThreadOpen ? 'open' : 'notification';
}
