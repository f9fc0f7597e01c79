import { RelayError } from '../errors.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { answersOf } from '../phone/question.ts';
import { hashOfShown } from '../phone/shown.ts';
import type { Payload } from '../socket/envelope.ts';
import type { LinkChannel, SendOnChannel } from './link/link.ts';
import type { SettingsStore } from './safety-settings.ts';

const MAX_TEXT = 64 * 1024;
const MAX_MESSAGES = 100;
/** Ids of messages remembered, to detect duplicates (contract 04 §5.4a). */
const MAX_KNOWN = 1000;
const MAX_PENDING_REPLIES = 100;
const MAX_REASON = 40;

/** A message from the agent, as stored on this phone (contract 04 §5.2). */
export interface ReceivedMessage {
  messageId: string;
  chatId: string | null;
  title: string | null;
  text: string;
  surfacing: string | null;
  replyTo: string | null;
  /** Epoch ms at which the relay accepted it; null if not stated. */
  sentAt: number | null;
  /** It was queued on the relay until this phone subscribed. */
  queued: boolean;
  /** Answers to choose from (contract 09 §10). */
  answers: readonly string[];
  /** Arrived unsealed through the edge, where anybody may have written it (contract 12 §4). */
  unsealed?: true;
}

/** Where a message is shown: as a notification, silently in its thread, or in the open thread. */
export type Surface = 'notification' | 'silent' | 'open';

/** A reply from the person at this phone, as it goes on the wire. */
export interface OutgoingReply {
  text: string;
  chat_id: string | null;
  reply_to: string | null;
  message_id: string;
  /** Index of the chosen answer of the message (contract 09 §10). */
  answer_index?: number;
  /** Epoch ms. */
  ts: number;
  /** Hash of the message as shown here (contract 12 §4); absent if that is no longer known. */
  shown?: string;
  /** For programs, such as the source of the words (contract 04 §5.5). */
  metadata?: Record<string, string>;
}

/** A reply to a message (`replyTo`) or into a chat; with neither, to the newest message. */
export interface ReplyDraft {
  /** Not needed with one of the message's answers. */
  text?: string;
  /** Index of one of the message's answers. */
  answerIndex?: number;
  chatId?: string | null;
  replyTo?: string;
  metadata?: Record<string, string>;
}

export interface MessagesDeps {
  settings: Pick<SettingsStore, 'get' | 'onChange'>;
  clock: Clock;
  log: Log;
  /** Returns true if the owner sees the message now. */
  onMessage(message: ReceivedMessage, surface: Surface): boolean;
  /** All queued messages have arrived. */
  onBacklog(count: number): void;
  /** The relay has acknowledged a reply; `late` is the reason if it came too late (contract 09 §7). */
  onAcknowledged(reply: OutgoingReply, lateReason: string | null): void;
  /** A question was closed without an answer: `withdrawn` or `expired`. */
  onClosed(message: ReceivedMessage, reason: string): void;
  /** The subscription has started or ended. */
  onSubscribed(isSubscribed: boolean): void;
}

export type Messages = ReturnType<typeof createMessages>;

/** The phone's side of channel `proactive` (contract 04 §5). It is subscribed while the messages toggle is on. */
export function createMessages(deps: MessagesDeps) {
  const { settings, clock, log } = deps;
  const cache = createMessageCache();
  /** Replies that the relay has not acknowledged, oldest first. After a reconnect, they are sent again under the same id. */
  const outbox = new Map<string, OutgoingReply>();
  let send: SendOnChannel | null = null;
  let isThreadOpen = false;
  let isWanted = settings.get().messagesEnabled;

  const stopSettings = settings.onChange(({ messagesEnabled }) => {
    if (messagesEnabled === isWanted) return;
    isWanted = messagesEnabled;
    send?.(isWanted ? 'proactive.subscribe' : 'proactive.unsubscribe', {});
    if (!isWanted && send) deps.onSubscribed(false);
  });

  function online(sendNow: SendOnChannel): Cancel {
    send = sendNow;
    if (isWanted) send('proactive.subscribe', {});
    for (const reply of outbox.values()) send('proactive.reply', { ...reply });
    return () => {
      send = null;
    };
  }

  return {
    /** Register this on the link. */
    channel: {
      online,
      message({ type, payload }) {
        if (type === 'phone.message') {
          const message = readMessage(payload);
          if (!message) return log.warn('the relay sent a malformed message');
          // Stored before it is shown; a duplicate is shown once.
          const isNew = cache.add(message);
          if (isNew && deps.onMessage(message, surfaceOf(message, isThreadOpen))) cache.shown(message);
          // For a duplicate, whose receipt may have been lost (contract 09 §1).
          if (cache.isShown(message)) send?.('proactive.shown', { message_id: message.messageId });
        } else if (type === 'proactive.backlog.complete') {
          if (typeof payload.count === 'number') deps.onBacklog(payload.count);
        } else if (type === 'proactive.reply.ack') {
          const { client_msg_id: id, late: lateReason } = payload;
          const reply = typeof id === 'string' ? outbox.get(id) : undefined;
          if (!reply) return;
          outbox.delete(reply.message_id);
          deps.onAcknowledged(reply, typeof lateReason === 'string' ? lateReason : null);
        } else if (type === 'phone.message.cancelled') {
          const message = cache.close(payload.message_id);
          const reason = typeof payload.reason === 'string' ? payload.reason.slice(0, MAX_REASON) : 'withdrawn';
          if (message) deps.onClosed(message, reason);
        } else if (type === 'proactive.subscribed' && isWanted) deps.onSubscribed(true);
      },
    } satisfies LinkChannel,
    /** Newest first. */
    list: cache.list,
    /** The newest open question with answers to choose from, if any. */
    question: cache.question,
    /** Stops offering a question. A reply still answers it. */
    putAside: (messageId: string): void => void cache.close(messageId),

    /**
     * Sends a reply, now or as soon as the link is online.
     * @throws RelayError `invalid` for blank text or an answer that the message does not offer, `conflict` if there is
     * nothing to reply to or the outbox is full.
     */
    reply({ text: written, answerIndex, chatId, replyTo, metadata }: ReplyDraft): OutgoingReply {
      const newest = chatId === undefined && replyTo === undefined ? cache.list()[0] : undefined;
      const original = replyTo === undefined ? newest : cache.get(replyTo);
      if (chatId === undefined && replyTo === undefined && !original) {
        throw new RelayError('conflict', 'there is no message to reply to');
      }
      const answer = answerIndex === undefined ? undefined : original?.answers[answerIndex];
      if (answerIndex !== undefined && answer === undefined) {
        throw new RelayError('invalid', 'the message does not offer this answer');
      }
      const text = answer ?? written ?? '';
      if (text.trim() === '') throw new RelayError('invalid', 'the reply is empty');
      const reply: OutgoingReply = {
        text,
        chat_id: chatId ?? original?.chatId ?? null,
        reply_to: replyTo ?? original?.messageId ?? null,
        message_id: bytesToHex(randomBytes(6)),
        ts: clock.now(),
        ...(answerIndex !== undefined && { answer_index: answerIndex }),
        ...(original && { shown: hashOfShown(original) }),
        ...(metadata && { metadata }),
      };
      if (outbox.size >= MAX_PENDING_REPLIES) {
        throw new RelayError('conflict', 'too many replies are waiting for the relay');
      }
      outbox.set(reply.message_id, reply);
      if (reply.reply_to !== null) cache.close(reply.reply_to);
      send?.('proactive.reply', { ...reply });
      return reply;
    },
    /** Tells whether a thread is open on the screen, for the surfacing rules. */
    setThreadOpen(isOpen: boolean): void {
      isThreadOpen = isOpen;
    },
    close: stopSettings,
  };
}

/** Reads `phone.message`. Null for a payload that a phone's decoder rejects, such as an object in place of a string. */
function readMessage(payload: Payload): ReceivedMessage | null {
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
    answers: isObject(payload.metadata) ? answersOf(payload.metadata) : [],
    ...(isUnsealed(payload) && { unsealed: true }),
  };
}

const isUnsealed = ({ sealed, metadata }: Payload): boolean =>
  sealed === false || (isObject(metadata) && metadata.sealed === false);

/** The surfacing rules (contract 04 §5.3). */
function surfaceOf({ surfacing }: ReceivedMessage, isThreadOpen: boolean): Surface {
  if (surfacing === 'inbox') return 'silent';
  return surfacing === 'session' && isThreadOpen ? 'open' : 'notification';
}

/**
 * The 100 newest messages (contract 04 §5.3), without duplicates: a relay sends a message again unless it knows that it
 * arrived.
 */
function createMessageCache() {
  let messages: readonly ReceivedMessage[] = [];
  /** Whether each was shown, oldest first. */
  const known = new Map<string, boolean>();
  /** Ids of unanswered questions with answers to choose from. */
  const open = new Set<string>();
  const get = (messageId: string) => messages.find((message) => message.messageId === messageId);
  return {
    /** False for a duplicate. */
    add(message: ReceivedMessage): boolean {
      const wasShown = known.get(message.messageId);
      known.delete(message.messageId);
      known.set(message.messageId, wasShown ?? false);
      if (wasShown !== undefined) return false;
      if (known.size > MAX_KNOWN) known.delete(known.keys().next().value as string);
      messages = [message, ...messages].slice(0, MAX_MESSAGES);
      if (message.answers.length > 0) open.add(message.messageId);
      const oldest = open.values().next().value;
      if (oldest !== undefined && !get(oldest)) open.delete(oldest);
      return true;
    },
    shown: ({ messageId }: ReceivedMessage): void => void known.set(messageId, true),
    isShown: ({ messageId }: ReceivedMessage): boolean => known.get(messageId) === true,
    list: () => messages,
    get,
    question: () => messages.find(({ messageId }) => open.has(messageId)),
    /** Returns the question of this id if it was open. */
    close: (messageId: unknown) =>
      typeof messageId === 'string' && open.delete(messageId) ? get(messageId) : undefined,
  };
}
