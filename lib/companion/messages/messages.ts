import { RelayError } from '../../errors.ts';
import { bytesToHex, randomBytes } from '../../kit/bytes.ts';
import type { Cancel, Clock } from '../../kit/clock.ts';
import type { Log } from '../../log.ts';
import type { LinkChannel, SendOnChannel } from '../link/channel.ts';
import type { SettingsStore } from '../types.ts';
import { type ReceivedMessage, readReceived, type Surface, surfaceOf } from './message.ts';
import { createOutbox, type OutgoingReply } from './outbox.ts';
import { createThreadCache } from './threads.ts';

export interface MessagesParts {
  settings: Pick<SettingsStore, 'get' | 'onChange'>;
  clock: Clock;
  log: Log;
  onMessage(message: ReceivedMessage, surface: Surface): void;
  /** All that had waited is here. */
  onBacklog(count: number): void;
  /** The relay has it. */
  onAcknowledged(reply: OutgoingReply): void;
  /** The relay sends messages here now, or no longer. */
  onSubscribed(isSubscribed: boolean): void;
}

/** What is answered: a message, a chat, or, with neither, the newest message. */
export interface Answer {
  text: string;
  chatId?: string | null;
  replyTo?: string;
}

export interface Messages {
  /** To be put on the link. */
  readonly channel: LinkChannel;
  /** The newest first. */
  list(): readonly ReceivedMessage[];
  /**
   * Sends an answer, now or as soon as the relay is there.
   * @throws RelayError `invalid` for a blank text, `conflict` when there is nothing to answer or too much waits.
   */
  answer(answer: Answer): OutgoingReply;
  /** Somebody looks at a thread, or no longer does. */
  lookAtThread(isOpen: boolean): void;
  close(): void;
}

/** The phone's side of channel `proactive` (contract 04 §5): subscribes while its toggle is on, keeps, answers. */
export function createMessages(parts: MessagesParts): Messages {
  const { settings, clock, log } = parts;
  const cache = createThreadCache();
  const outbox = createOutbox();
  let send: SendOnChannel | null = null;
  let isThreadOpen = false;
  let wanted = settings.get().messagesEnabled;

  const stopSettings = settings.onChange(({ messagesEnabled }) => {
    if (messagesEnabled === wanted) return;
    wanted = messagesEnabled;
    send?.(wanted ? 'proactive.subscribe' : 'proactive.unsubscribe', {});
    if (!wanted && send) parts.onSubscribed(false);
  });

  function online(sendNow: SendOnChannel): Cancel {
    send = sendNow;
    if (wanted) send('proactive.subscribe', {});
    for (const reply of outbox.waiting()) send('proactive.reply', { ...reply });
    return () => {
      send = null;
    };
  }

  return {
    channel: {
      online,
      message({ type, payload }) {
        if (type === 'phone.message') {
          const message = readReceived(payload);
          if (!message) return log.warn('a message of the relay cannot be read');
          // It is kept before it is shown; one that came twice is shown once.
          if (cache.add(message)) parts.onMessage(message, surfaceOf(message, isThreadOpen));
        } else if (type === 'proactive.backlog.complete') {
          if (typeof payload.count === 'number') parts.onBacklog(payload.count);
        } else if (type === 'proactive.reply.ack') {
          const reply = outbox.acknowledge(payload);
          if (reply) parts.onAcknowledged(reply);
        } else if (type === 'proactive.subscribed' && wanted) parts.onSubscribed(true);
      },
    },
    list: cache.list,
    answer({ text, chatId, replyTo }) {
      if (text.trim() === '') throw new RelayError('invalid', 'the reply is empty');
      const newest = chatId === undefined && replyTo === undefined ? cache.list()[0] : undefined;
      const answered = replyTo === undefined ? newest : cache.get(replyTo);
      if (chatId === undefined && replyTo === undefined && !answered) {
        throw new RelayError('conflict', 'there is no message to answer');
      }
      const reply: OutgoingReply = {
        text,
        chat_id: chatId ?? answered?.chatId ?? null,
        reply_to: replyTo ?? answered?.messageId ?? null,
        message_id: bytesToHex(randomBytes(6)),
        ts: clock.now(),
      };
      if (!outbox.add(reply)) throw new RelayError('conflict', 'too many replies wait for the relay');
      send?.('proactive.reply', { ...reply });
      return reply;
    },
    lookAtThread(isOpen) {
      isThreadOpen = isOpen;
    },
    close: stopSettings,
  };
}
