import type { PhoneMessage, QueuedMessage, Reply, Store } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
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

/** A phone's socket. */
export interface PhoneLink {
  readonly id: string;
  readonly session: Session;
  /** Whether a frame that is sent now can still leave. */
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
  /** Called for the chat of every message and reply (contract 04 §5.7). */
  seen?(chat: SeenChat): void;
}

/** The outcome of a push: delivered, or queued as one of `buffered`. */
export type Pushed = { messageId: string; delivered: true } | { messageId: string; delivered: false; buffered: number };

const CHANNEL = 'proactive';
/** Needed for messages, replies and notifications, on routes and channels alike (contract 01 §6.2). */
export const PHONE_GRANT = 'phone';

export type PhoneMessaging = Awaited<ReturnType<typeof openPhoneMessaging>>;

/**
 * Messages from the agent to its owner's phone, and the replies (contract 04 §5). Queued messages and unread replies are
 * stored before they are acknowledged, and survive the process (contract 00).
 */
export async function openPhoneMessaging(parts: PhoneParts) {
  const { sessions, clock, log } = parts;
  const queueRows = await openRows({ store: parts.queue, log, read: readQueued });
  const replyRows = await openRows({ store: parts.replies, log, read: readStoredReply });
  const replies = createReplies({ rows: replyRows, clock, log });
  const subscribers = parts.subscribers && (await openSubscribers<PhoneLink>(parts.subscribers, log));
  let state: Delivery<PhoneLink> = emptyDelivery(queueRows.loaded);
  const events: Event<PhoneLink>[] = [];
  let isDispatching = false;

  /** Handles an event completely. One raised meanwhile (a socket closes while it is written to) is handled after it. */
  function dispatch(event: Event<PhoneLink>): void {
    events.push(event);
    if (isDispatching) return;
    isDispatching = true;
    try {
      for (let next = events.shift(); next; next = events.shift()) settle(next);
    } finally {
      isDispatching = false;
    }
    // While sockets are restored one by one, the stored order must stay complete.
    if (event.name !== 'restore') subscribers?.save(state.subscribers);
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
        // Saved first: a phone that is told that this was all must not get it again, even after a crash.
        void saveQueue();
        to.send(CHANNEL, 'proactive.backlog.complete', { count: effect.count, ts });
        log.info(`flushed ${effect.count} messages to session ${to.session.prefix}`);
        return undefined;
      case 'write':
        return write(to, effect.message, effect.queued) ? { name: 'written' } : { name: 'failed' };
    }
  }

  /** Checks session and grant before every push, not only at subscription. */
  function write(to: PhoneLink, message: PhoneMessage, queued: boolean): boolean {
    if (!to.isWritable || !sessions.isAlive(to.session)) return false;
    if (!isGranted(to.session.grants, PHONE_GRANT, seconds(clock))) return false;
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
    /** `proactive.subscribe`: makes the socket the target and sends it the queue. */
    subscribe(link: PhoneLink, id: string): void {
      dispatch({ name: 'subscribe', link, id });
      void saveQueue();
    },

    /** `proactive.unsubscribe`, or the end of the socket: the previous subscriber that is still open takes over. */
    leave(link: PhoneLink): void {
      if (!state.subscribers.includes(link)) return;
      dispatch({ name: 'leave', link });
      void saveQueue();
    },

    /** Restores the subscription of a socket that outlived the memory of the process (edge). */
    restore(link: PhoneLink): void {
      if (subscribers) dispatch({ name: 'restore', links: subscribers.restore(state.subscribers, link) });
    },

    /** Every socket that outlived a sleep is back: forgets the subscriptions of the others. */
    restored: (): void => subscribers?.save(state.subscribers),

    /**
     * A message to the phone: sent, or stored until one subscribes (contract 04 §5.3, 5.4).
     * @throws RelayError `invalid` for a bad field; `unavailable` when it had to wait and could not be stored.
     */
    async push(body: Readonly<Record<string, unknown>>): Promise<Pushed> {
      const message = readMessage(body, clock.now());
      const { message_id: messageId, chat_id: chatId, title } = message;
      const isQueued = () => state.queue.some((queued) => queued.message === message);
      dispatch({ name: 'push', entry: { seq: queueRows.next(), message } });
      const buffered = isQueued() ? state.queue.length : 0;
      try {
        await queueRows.save(state.queue);
      } catch (error) {
        log.error(`the queue of messages could not be saved: ${describeError(error)}`);
        if (isQueued()) {
          dispatch({ name: 'cancel', messageId });
          void saveQueue();
          throw new RelayError('unavailable', 'the message could not be stored: try again later');
        }
      }
      const outcome = buffered > 0 ? `queued as one of ${buffered}` : 'delivered';
      log.info(`message ${messageId} of ${message.text.length} characters for chat ${chatId ?? '-'}: ${outcome}`);
      parts.seen?.({ chatId, title, messageId, at: message.sent_at });
      return buffered > 0 ? { messageId, delivered: false, buffered } : { messageId, delivered: true };
    },

    /** The queued messages, first in first out. */
    queued(): PhoneMessage[] {
      dispatch({ name: 'expire' });
      return state.queue.map(({ message }) => message);
    },

    /** Cancels a queued message, or without an id all of them. Resolves with their number once that is stored. */
    async cancel(messageId?: string): Promise<number> {
      dispatch({ name: 'expire' });
      const before = state.queue.length;
      dispatch({ name: 'cancel', messageId });
      const cancelled = before - state.queue.length;
      if (cancelled > 0) log.info(`${cancelled} queued messages cancelled`);
      await saveQueue();
      return cancelled;
    },

    /** `proactive.reply`: acknowledged once it is stored, ignored without a text. Rejects when it cannot be stored. */
    async reply(link: PhoneLink, payload: Payload, id: string): Promise<void> {
      const reply = await replies.add(payload);
      if (!reply) return log.debug(`ignored a reply without text from session ${link.session.prefix}`);
      const { message_id: messageId, chat_id: chatId, text } = reply;
      const ts = Math.trunc(clock.now());
      link.send(CHANNEL, 'proactive.reply.ack', { client_msg_id: messageId, status: 'received', ts }, id);
      log.info(`reply ${messageId} of ${text.length} characters in chat ${chatId ?? '-'}`);
      parts.seen?.({ chatId, title: null, messageId, at: ts });
    },

    /** Unread replies (contract 04 §5.5). */
    poll: (poll: Poll): Promise<Reply[]> => replies.poll(poll),

    /** How many polls wait. */
    pollsWaiting: replies.waiting,

    /** Answers waiting polls; resolves when everything is stored. */
    async stop(): Promise<void> {
      await Promise.all([replies.stop(), saveQueue()]);
    },
  };
}

/** Reads a stored message; undefined if it is not one. */
function readQueued(value: unknown): QueuedMessage | undefined {
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
