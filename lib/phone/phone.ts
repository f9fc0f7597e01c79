import type { PhoneMessage, QueuedMessage, Reply, Store } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Payload } from '../socket/envelope.ts';
import { type Delivery, type Effect, type Event, emptyDelivery, type Step, transition } from './delivery.ts';
import { readMessage } from './message.ts';
import { createReplies, type Poll } from './replies.ts';
import { readStoredReply } from './reply.ts';
import { openRows, saveLater } from './rows.ts';
import { openSubscribers } from './subscribers.ts';
import type { SeenChat } from './threads.ts';

/** What phone messaging needs of a phone's socket. */
export interface PhoneLink {
  readonly id: string;
  readonly session: Session;
  /** Whether what is sent now can still leave. */
  readonly isWritable: boolean;
  send(channel: string, type: string, payload: Payload, id?: string): void;
}

export interface PhoneParts {
  sessions: Pick<Sessions, 'isAlive'>;
  clock: Clock;
  log: Log;
  queue: Store<'phone'>;
  replies: Store<'phone-replies'>;
  /** Where subscriptions are stored; absent where the process lives as long as its sockets. */
  subscribers?: Store<'phone-subscribers'>;
  /** Told of every chat as it goes by (contract 04 §5.7). */
  seen?(chat: SeenChat): void;
}

/** What became of a message: with a phone, or waiting as one of `buffered`. */
export type Pushed = { messageId: string; delivered: true } | { messageId: string; delivered: false; buffered: number };

const CHANNEL = 'proactive';

export type PhoneMessaging = Awaited<ReturnType<typeof openPhoneMessaging>>;

/**
 * Messages from the agent to its person's phone, and their replies (contract 04 §5). What waits is stored before it
 * is answered or acknowledged, and survives the process (contract 00).
 */
export async function openPhoneMessaging(parts: PhoneParts) {
  const { sessions, clock, log } = parts;
  const queueRows = await openRows({ store: parts.queue, log, read: readWaiting });
  const replyRows = await openRows({ store: parts.replies, log, read: readStoredReply });
  const replies = createReplies({ rows: replyRows, clock, log });
  const memory = parts.subscribers && (await openSubscribers<PhoneLink>(parts.subscribers, log));
  let state: Delivery<PhoneLink> = emptyDelivery(queueRows.loaded);
  const coming: Event<PhoneLink>[] = [];
  let busy = false;

  /** Deals with an event to its end. One that comes of another (a socket closes as it is written to) waits for it. */
  function happen(event: Event<PhoneLink>): void {
    coming.push(event);
    if (busy) return;
    busy = true;
    try {
      for (let next = coming.shift(); next; next = coming.shift()) settle(next);
    } finally {
      busy = false;
    }
    // While sockets are taken up one by one, the order of all of them must not be forgotten.
    if (event.name !== 'restore') memory?.save(state.subscribers);
  }

  function settle(event: Event<PhoneLink>): void {
    for (let next: Event<PhoneLink> | undefined = event; next; ) {
      const [after, effects]: Step<PhoneLink> = transition(state, next, clock.now());
      state = after;
      next = undefined;
      for (const effect of effects) next = perform(effect) ?? next;
    }
  }

  function perform(effect: Effect<PhoneLink>): Event<PhoneLink> | undefined {
    const { to } = effect;
    const ts = Math.trunc(clock.now());
    switch (effect.do) {
      case 'acknowledge':
        to.send(CHANNEL, 'proactive.subscribed', { ts }, effect.id);
        return undefined;
      case 'complete':
        // Asked for first: whoever is told that this was all does not get it again, whatever happens to the process.
        void saveQueue();
        to.send(CHANNEL, 'proactive.backlog.complete', { count: effect.count, ts });
        log.info(`flushed ${effect.count} messages to session ${to.session.prefix}`);
        return undefined;
      case 'write':
        return write(to, effect.message, effect.queued) ? { name: 'written' } : { name: 'failed' };
    }
  }

  /** The session is looked at before every push, not only when its socket subscribed. */
  function write(to: PhoneLink, message: PhoneMessage, queued: boolean): boolean {
    if (!to.isWritable || !sessions.isAlive(to.session)) return false;
    try {
      to.send(CHANNEL, 'phone.message', queued ? { ...message, queued_delivery: true } : message, message.message_id);
    } catch (error) {
      log.warn(`a message could not be sent: ${describeError(error)}`);
      return false;
    }
    return to.isWritable;
  }

  const saveQueue = () => saveLater(queueRows, state.queue, log);

  return {
    /** `proactive.subscribe`: this socket is the target from now on, and gets what has waited. */
    subscribe(link: PhoneLink, id: string): void {
      happen({ name: 'subscribe', link, id });
      void saveQueue();
    },

    /** `proactive.unsubscribe`, or the end of the socket: an earlier subscriber that is still there takes over. */
    leave(link: PhoneLink): void {
      if (!state.subscribers.includes(link)) return;
      happen({ name: 'leave', link });
      void saveQueue();
    },

    /** A socket that outlived the memory of the process (edge). */
    restore(link: PhoneLink): void {
      if (memory) happen({ name: 'restore', links: memory.restore(state.subscribers, link) });
    },

    /**
     * A message to the phone: sent, or stored until one subscribes (contract 04 §5.3, 5.4).
     * @throws RelayError `invalid` for a bad field; `unavailable` when it had to wait and could not be stored.
     */
    async push(body: Readonly<Record<string, unknown>>): Promise<Pushed> {
      const message = readMessage(body, clock.now());
      const { message_id: messageId, chat_id: chatId, title } = message;
      const waits = () => state.queue.some((waiting) => waiting.message === message);
      happen({ name: 'push', entry: { seq: queueRows.next(), message } });
      const buffered = waits() ? state.queue.length : 0;
      try {
        await queueRows.save(state.queue);
      } catch (error) {
        log.error(`the queue of messages could not be saved: ${describeError(error)}`);
        if (waits()) {
          happen({ name: 'cancel', messageId });
          void saveQueue();
          throw new RelayError('unavailable', 'the message could not be stored: try again later');
        }
      }
      const outcome = buffered > 0 ? `queued as one of ${buffered}` : 'delivered';
      log.info(`message ${messageId} of ${message.text.length} characters for chat ${chatId ?? '-'}: ${outcome}`);
      parts.seen?.({ chatId, title, messageId, at: message.sent_at });
      return buffered > 0 ? { messageId, delivered: false, buffered } : { messageId, delivered: true };
    },

    /** What waits, first in first out. */
    queued(): PhoneMessage[] {
      happen({ name: 'look' });
      return state.queue.map(({ message }) => message);
    },

    /** Takes back a message that waits, or, without an id, all of them. Resolves with how many, once that is stored. */
    async cancel(messageId?: string): Promise<number> {
      happen({ name: 'look' });
      const before = state.queue.length;
      happen({ name: 'cancel', messageId });
      const cancelled = before - state.queue.length;
      if (cancelled > 0) log.info(`${cancelled} queued messages cancelled`);
      await saveQueue();
      return cancelled;
    },

    /** `proactive.reply`: acknowledged once it is stored; what is no reply is not. Rejects when it cannot be stored. */
    async reply(link: PhoneLink, payload: Payload, id: string): Promise<void> {
      const reply = await replies.add(payload);
      if (!reply) return log.debug(`ignored a reply without text from session ${link.session.prefix}`);
      const { message_id: messageId, chat_id: chatId, text } = reply;
      const ts = Math.trunc(clock.now());
      link.send(CHANNEL, 'proactive.reply.ack', { client_msg_id: messageId, status: 'received', ts }, id);
      log.info(`reply ${messageId} of ${text.length} characters in chat ${chatId ?? '-'}`);
      parts.seen?.({ chatId, title: null, messageId, at: ts });
    },

    /** Replies that nobody has read yet (contract 04 §5.5). */
    poll: (poll: Poll): Promise<Reply[]> => replies.poll(poll),

    /** Polls that wait now. */
    pollsWaiting: replies.waiting,

    /** Answers waiting polls; resolves when everything is stored. */
    async stop(): Promise<void> {
      await Promise.all([replies.stop(), saveQueue()]);
    },
  };
}

/** A stored message as it was written; undefined for anything else. */
function readWaiting(value: unknown): QueuedMessage | undefined {
  if (!isObject(value) || !isObject(value.message)) return undefined;
  const { seq, message } = value;
  const { sent_at: sentAt, message_id: id } = message;
  if (typeof seq !== 'number' || typeof sentAt !== 'number' || typeof id !== 'string') return undefined;
  try {
    return { seq, message: readMessage(message, sentAt) };
  } catch {
    return undefined;
  }
}
