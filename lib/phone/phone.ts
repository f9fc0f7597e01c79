import type {
  MessageStanding,
  PhoneHistoryItem,
  PhoneMessage,
  QueuedMessage,
  Reply,
  Store,
} from '../../storage/schema.ts';
import { describeError, mirrorBacklog, notStored, RelayError } from '../errors.ts';
import { createApplied } from '../kit/applied.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Connection } from '../socket/channel.ts';
import type { Payload } from '../socket/envelope.ts';
import type { ClockJump } from '../steady-clock.ts';
import { createAside } from './aside.ts';
import { createAsks } from './asks.ts';
import { isLater, reception } from './custody.ts';
import { openDelivered } from './delivered.ts';
import {
  type Delivery,
  type Effect,
  type Event,
  emptyDelivery,
  type Held,
  hasExpired,
  RETENTION,
  type Step,
  transition,
} from './delivery.ts';
import {
  type Closed,
  closedBy,
  type HistoryPage,
  type MessageContent,
  type MessageItem,
  type MessageState,
  openHistory,
  standingOf,
} from './history.ts';
import { readGivenMessage, readMessage } from './message.ts';
import { createQuestionExpiry } from './question-expiry.ts';
import { createReplies } from './replies.ts';
import { readReply, readStoredReply } from './reply.ts';
import { createReplyChecks } from './reply-checks.ts';
import { openRows, saveLater } from './rows.ts';
import { isUnsealed } from './sealed.ts';
import { readShown, shownOf } from './shown.ts';
import { openSubscribers } from './subscribers.ts';
import type { SeenChat } from './threads.ts';

/** A phone's socket. */
export type PhoneLink = Pick<Connection, 'id' | 'session' | 'isWritable' | 'send' | 'probe'>;

export interface PhoneDeps {
  sessions: Pick<Sessions, 'isAlive'>;
  clock: Clock;
  /** Set if the start is long after the last write, so that the clock may be wrong (contract 11 §2). */
  jump?: ClockJump;
  log: Log;
  queue: Store<'phone'>;
  replies: Store<'phone-replies'>;
  history: Store<'phone-history'>;
  /** Absent where no state is ever restored. */
  restored?: Store<'restored'>;
  delivered: Store<'phone-delivered'>;
  /** Store of the subscriptions; absent if the process lives as long as its sockets. */
  subscribers?: Store<'phone-subscribers'>;
  /**
   * Messages or replies have changed. Gets the number of waiting messages, and the `seq` of the newest item of the history.
   */
  changed?(queued: number, latest: number): void;
  /** A message was sent to a device or copied to one (`isHeard`), or it waits. Called before it is stored. */
  accepted?(message: PhoneMessage, isHeard: boolean): void;
  /** No device needs to be notified of a message any more; `session` is that of the device that showed it. */
  settled?(messageId: string, session?: Session): void;
  /** Called for the chat of every message and reply (contract 04 §5.7). */
  seen?(chat: SeenChat): void;
}

/** The other relay of the mirror (contract 12 §2). Called in the turn of a change, whose transaction it joins. */
export interface OtherRelay {
  /** Reports the progress of a message that it knows. False if that is not possible now. */
  report(messageId: string, standing: MessageStanding): boolean;
  /**
   * A device of this name has replied to this relay. False if the other relay has no room for more, or has yet to get another
   * reply with this id, in which cases the reply must be refused.
   */
  replied(reply: Reply, device: string): boolean;
  /** A reader here has taken a reply. */
  onTaken(messageId: string): void;
  /** True at the edge, where home numbers the history. */
  isEdge(): boolean;
  /** Hands over a message that the other relay has never had, with its progress. False if that is not possible now. */
  given(item: MessageItem, standing: MessageStanding): boolean;
  /** True if the other relay has no room for more, in which case a message must be refused. */
  isFull(): boolean;
  /** Messages were queued or removed, or phones have subscribed or left. */
  changed(): void;
}

/** The outcome of a push: delivered, perhaps by an earlier one (`isDuplicate`), or queued as one of `buffered`. */
export type Pushed =
  | { messageId: string; delivered: true; isDuplicate?: true }
  | { messageId: string; delivered: false; buffered: number };

const CHANNEL = 'proactive';
/** States in which a message needs no more notifications. */
const SETTLED: ReadonlySet<string> = new Set(['shown', 'answered', 'cancelled', 'expired', 'dropped']);
/** Withdrawn questions remembered for phones that reconnect. */
const MAX_CLOSED = 50;
/** Required for messages, replies and notifications, on routes and channels alike (contract 01 §6.2). */
export const PHONE_GRANT = 'phone';

export type PhoneMessaging = Awaited<ReturnType<typeof openPhoneMessaging>>;

/**
 * Messages from the agent to its owner's phone, and the replies (contract 04 §5). Queued messages and unread replies are
 * stored before they are acknowledged, and survive the process (contract 00).
 */
export async function openPhoneMessaging(deps: PhoneDeps) {
  const { sessions, clock, log } = deps;
  const queueRows = await openRows({ store: deps.queue, log, read: readQueued });
  const replyRows = await openRows({ store: deps.replies, log, read: readStoredReply });
  const history = await openHistory({
    store: deps.history,
    restored: deps.restored,
    log,
    changed: announce,
    isEdge: () => other?.isEdge() ?? false,
    give: (item) => {
      const standing = toldOf(item);
      return other?.given(item, standing) ? standing : undefined;
    },
    report: (messageId, standing) =>
      (standing !== 'sent' || delivered.has(messageId)) && (other?.report(messageId, standing) ?? false),
  });
  /** The standing reported to the other relay, where a message counts as `sent` once it has arrived. */
  const toldOf = (item: MessageItem): MessageStanding => {
    const standing = standingOf(item);
    return standing === 'sent' && !delivered.has(item.message_id) ? 'queued' : standing;
  };
  let other: OtherRelay | undefined;
  const delivered = await openDelivered(deps.delivered, log);
  const markTaken = (messageId: string): void => {
    history.taken(messageId);
    other?.onTaken(messageId);
  };
  const replies = createReplies({ rows: replyRows, clock, log, history: { ...history, taken: markTaken } });
  const subscribers = deps.subscribers && (await openSubscribers<PhoneLink>(deps.subscribers, log));
  const { queued, written } = subscribers?.split(queueRows.loaded) ?? { queued: queueRows.loaded, written: [] };
  const aside = createAside(queued, { clock, jump: deps.jump, history, log });
  let state: Delivery<PhoneLink> = emptyDelivery(aside.others);
  /** Messages written to sockets before the process slept, until those sockets are restored (edge). */
  let unclaimed: readonly QueuedMessage[] = written;
  // The last process may have ended between the two transactions of a delivery.
  history.delivered(new Set(queueRows.loaded.map(({ message }) => message.message_id)));
  // It is also unknown whether the messages that it wrote have arrived.
  for (const { message } of queued) history.returned(message.message_id);
  /** Sockets that get a copy of every message, without consuming it (contract 09 §1). */
  const mirrors = new Set<PhoneLink>();
  /** Sockets that are being probed for the arrival of their messages. */
  const probed = new Set<PhoneLink>();
  /** Ids of questions that were withdrawn after delivery, oldest first, for phones that reconnect. */
  const closed = new Set(history.withdrawnSince(clock.now() - RETENTION).slice(-MAX_CLOSED));
  /** Ids of questions whose callers ended with the last process. */
  const abandoned = history.abandoned().map(({ message_id }) => message_id);
  const events: Event<PhoneLink>[] = [];
  /** During a push, collects the messages that a full queue drops for it: they count as dropped once it is stored. */
  let displaced: QueuedMessage[] | undefined;
  let isDispatching = false;
  const expiry = createQuestionExpiry(clock, () => {
    dispatch({ name: 'expire' });
    void saveQueue();
  });
  /** Called with each message whose state changes. */
  const watchers = new Set<(messageId: string) => void>();
  const asks = createAsks({ clock, log, push: (body, by) => push(body, { by, isAsked: true }), withdraw });
  const { latenessOf, meant } = createReplyChecks({ history, asks, log });

  /** Sends the new states of messages and replies to the sockets that get copies, and reports the change. */
  function announce(items: readonly PhoneHistoryItem[], latest: number): void {
    for (const item of items) {
      const { seq, kind, message_id, state } = item;
      if (kind === 'message' && SETTLED.has(state)) deps.settled?.(message_id);
      for (const link of [...mirrors]) {
        if (mayGet(link)) link.send(CHANNEL, 'proactive.history', { seq, kind, message_id, state });
      }
      if (kind === 'message') {
        announceEnd(message_id, closedBy(item));
        for (const watcher of [...watchers]) watcher(message_id);
      }
    }
    asks.changed(items);
    deps.changed?.(state.queue.length, latest);
  }

  /** Tells every device to close a question that was withdrawn or has expired (contract 09 §7). */
  function announceEnd(messageId: string, reason: Closed | undefined): void {
    if (reason === undefined || reason === 'answered') return;
    for (const link of new Set([...state.subscribers, ...mirrors])) sendEnd(link, messageId, reason);
  }

  function sendEnd(link: PhoneLink, messageId: string, reason: Exclude<Closed, 'answered'>): void {
    if (mayGet(link)) link.send(CHANNEL, 'phone.message.cancelled', { message_id: messageId, reason });
  }

  /**
   * Handles an event completely. An event raised meanwhile (a socket closes while it is written to) is handled afterwards.
   */
  function dispatch(event: Event<PhoneLink>): void {
    events.push(event);
    if (isDispatching) return;
    isDispatching = true;
    try {
      for (let next = events.shift(); next; next = events.shift()) settle(next);
    } finally {
      isDispatching = false;
    }
    for (const { to } of state.custody) if (!probed.has(to)) probe(to);
    expiry.schedule(state.queue);
    other?.changed();
    // While sockets are restored one by one, the stored order must stay complete.
    if (event.name !== 'restore') saveSubscriptions();
  }

  /** Drops the queued messages that have expired. */
  function expire(): void {
    if (state.queue.length > 0) dispatch({ name: 'expire' });
  }

  /** Time (epoch ms) before which messages have expired, unless the clock may be wrong. */
  const freshSince = (): number => (deps.jump?.state() === 'ahead' ? 0 : clock.now() - RETENTION);

  /** The messages that wait at the other relay. */
  const awaited = () => history.awaited(freshSince());

  const saveSubscriptions = () => subscribers?.save({ targets: state.subscribers, mirrors, custody: state.custody });

  /**
   * Probes whether the messages written to a phone have arrived (contract 04 §5.4a). Later messages are covered by the next
   * probe.
   */
  function probe(link: PhoneLink): void {
    const held = state.custody.filter(({ to }) => to === link);
    probed.add(link);
    link.probe(() => {
      probed.delete(link);
      arrived(held);
    });
  }

  function arrived(held: readonly Held<PhoneLink>[]): void {
    if (held.length === 0) return;
    dispatch({ name: 'arrived', held });
    for (const { entry } of held) history.retell(entry.message.message_id);
    void saveLater(queueRows, undelivered(), log);
    void history.save();
  }

  /** A device has shown or answered a message, which proves its arrival. */
  const arrivedById = (messageId: string): void =>
    arrived(state.custody.filter(({ entry }) => entry.message.message_id === messageId));

  /** State that a crash must not lose. */
  const undelivered = (): QueuedMessage[] => [
    ...aside.entries(),
    ...state.custody.map(({ entry }) => entry),
    ...state.queue,
  ];

  function settle(event: Event<PhoneLink>): void {
    for (let next: Event<PhoneLink> | undefined = event; next; ) {
      const [after, effects]: Step<PhoneLink> = transition(state, next, clock.now());
      recordMoves(state, after, next);
      state = after;
      next = undefined;
      for (const effect of effects) next = perform(effect) ?? next;
    }
  }

  /** Records why messages have left the queue, or returned to it. */
  function recordMoves(before: Delivery<PhoneLink>, after: Delivery<PhoneLink>, event: Event<PhoneLink>): void {
    if (after.custody.length <= before.custody.length && (event.name === 'arrived' || event.name === 'written')) {
      const left = before.custody.filter((held) => !after.custody.includes(held));
      for (const { entry } of left) delivered.add(entry.message.message_id);
    }
    if (before.queue === after.queue) return;
    const released = event.name === 'release' ? event.messageId : undefined;
    const isLost = event.name === 'end' || event.name === 'failed';
    const returned = isLost ? before.custody.filter((held) => !after.custody.includes(held)) : [];
    for (const { entry } of returned) history.returned(entry.message.message_id);
    if (returned.length === 1) log.info('1 message may not have arrived: it is queued again');
    else if (returned.length > 1) log.info(`${returned.length} messages may not have arrived: they are queued again`);
    const waited = [...before.queue, ...returned.map(({ entry }) => entry)];
    const left = waited.filter((entry) => !after.queue.some(({ seq }) => seq === entry.seq));
    for (const entry of left) {
      const { message } = entry;
      if (message.message_id === released) continue;
      const others = event.name === 'cancel' ? 'cancelled' : event.name === 'written' ? 'sent' : 'dropped';
      const became = hasExpired(message, clock.now()) ? 'expired' : others;
      if (became === 'dropped' && displaced) displaced.push(entry);
      else history.became(message.message_id, became);
    }
  }

  /** Records messages that a full queue has dropped, unless they wait again. */
  function recordDropped(entries: readonly QueuedMessage[]): void {
    if (entries.length === 0) return;
    const waiting = undelivered();
    for (const { message } of entries) {
      const waits = waiting.some((other) => other.message.message_id === message.message_id);
      if (!waits) history.became(message.message_id, 'dropped');
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
        to.send(CHANNEL, 'proactive.backlog.complete', { count: effect.count, ts });
        log.info(`flushed ${effect.count} messages to session ${to.session.prefix}`);
        return undefined;
      case 'write': {
        const message = effect.queued ? { ...effect.message, queued_delivery: true } : effect.message;
        return send(to, message) ? { name: 'written' } : { name: 'failed' };
      }
    }
  }

  /** Checks session and grant before every push, not only at subscription. */
  const mayGet = ({ isWritable, session }: PhoneLink): boolean =>
    isWritable && sessions.isAlive(session) && isGranted(session.grants, PHONE_GRANT, seconds(clock));

  function send(to: PhoneLink, message: PhoneMessage & Payload): boolean {
    if (!mayGet(to)) return false;
    try {
      to.send(CHANNEL, 'phone.message', message, message.message_id);
    } catch (error) {
      log.warn(`a message could not be sent: ${describeError(error)}`);
      return false;
    }
    return to.isWritable;
  }

  /**
   * Stores the queue. The history follows in a separate transaction: with the items of a whole flush, the queue would be
   * stored so late that a crash could deliver everything twice.
   */
  const saveQueue = (): Promise<void> => {
    clock.after(0, () => void history.save());
    return saveLater(queueRows, undelivered(), log);
  };

  /** True if a message with this id has arrived, or was written to a socket and will be queued again unless it arrives. */
  const wasDelivered = (messageId: string): boolean =>
    delivered.has(messageId) || state.custody.some(({ entry }) => entry.message.message_id === messageId);

  async function push(
    body: Readonly<Record<string, unknown>>,
    { by, isAsked }: { by: string | undefined; isAsked: boolean },
  ): Promise<Pushed> {
    const message = readMessage(body, clock.now());
    const { message_id: messageId, chat_id: chatId, title } = message;
    const isQueued = () => state.queue.some((queued) => queued.message === message);
    // An expired queued message of the same id keeps its own item.
    expire();
    aside.take(messageId, 'expired');
    if (wasDelivered(messageId)) {
      log.info(`message ${messageId}${forWhom(by)} was delivered before: it is not sent again`);
      return { messageId, delivered: true, isDuplicate: true };
    }
    if (other?.isFull()) throw mirrorBacklog();
    const item = history.findMessage(messageId);
    const replaced = state.queue.find((entry) => entry.message.message_id === messageId);
    history.message(message, isAsked);
    if (isAsked) asks.worded(messageId, shownOf(message));
    const dropped: QueuedMessage[] = [];
    displaced = dropped;
    dispatch({ name: 'push', entry: { seq: queueRows.next(), message } });
    displaced = undefined;
    const copies = [...mirrors].filter((link) => send(link, { ...message, mirrored: true }));
    deps.accepted?.(message, !isQueued() || copies.length > 0);
    const buffered = isQueued() ? state.queue.length : 0;
    const stored = queueRows.save(undelivered());
    const recorded = history.save();
    try {
      await stored;
    } catch (error) {
      log.error(`the queue of messages could not be saved: ${describeError(error)}`);
      if (isQueued()) {
        dispatch({ name: 'cancel', messageId });
        const entries = replaced ? [replaced, ...dropped] : dropped;
        dispatch({ name: 'return', entries });
        // The replaced message has waited under the same item.
        if (item && item.seq === history.findMessage(messageId)?.seq) history.restore(item);
        recordDropped(entries);
        if (replaced) deps.accepted?.(replaced.message, false);
        else deps.settled?.(messageId);
        void saveQueue();
        throw new RelayError('unavailable', 'the message could not be stored: try again later');
      }
    }
    recordDropped(dropped);
    // With the next commit: the caller does not wait for what has become of other messages.
    if (dropped.length > 0) void history.save();
    await recorded;
    const outcome = buffered > 0 ? `queued as one of ${buffered}` : 'delivered';
    const { length } = message.text;
    log.info(`message ${messageId} of ${length} characters for chat ${chatId ?? '-'}${forWhom(by)}: ${outcome}`);
    deps.seen?.({ chatId, title, messageId, at: message.sent_at });
    return buffered > 0 ? { messageId, delivered: false, buffered } : { messageId, delivered: true };
  }

  /** Removes a queued message, or without an id all of them. Returns their number. */
  function takeQueued(messageId?: string, by?: string): number {
    expire();
    const before = state.queue.length;
    dispatch({ name: 'cancel', messageId });
    const away = awaited().filter(({ message_id }) => messageId === undefined || messageId === message_id);
    for (const { message_id } of away) history.became(message_id, 'cancelled');
    const cancelled = before - state.queue.length + aside.take(messageId, 'cancelled') + away.length;
    if (cancelled > 0) log.info(`${cancelled} queued messages cancelled${forWhom(by)}`);
    return cancelled;
  }

  const cancellations = createApplied({
    clock,
    log,
    what: 'the cancellation is in effect',
    async save() {
      const [isRecorded] = await Promise.all([history.save(), queueRows.save(undelivered())]);
      if (!isRecorded) throw new Error('the history of messages could not be saved');
    },
  });

  const logged = (error: unknown) => log.warn(describeError(error));

  async function cancel(messageId?: string, by?: string): Promise<number> {
    const cancelled = takeQueued(messageId, by);
    await cancellations.store();
    return cancelled;
  }

  /** Remembers a withdrawn question that a phone may still show. */
  function remember(messageId: string): void {
    closed.add(messageId);
    if (closed.size > MAX_CLOSED) closed.delete(closed.values().next().value as string);
  }

  async function withdraw(messageId: string, by?: string): Promise<number> {
    const cancelled = takeQueued(messageId, by);
    const isDelivered = history.withdraw(messageId);
    if (isDelivered) {
      unclaimed = unclaimed.filter(({ message }) => message.message_id !== messageId);
      arrivedById(messageId);
      remember(messageId);
      log.info(`question ${messageId} withdrawn${forWhom(by)}`);
    }
    await cancellations.store();
    return Math.max(cancelled, isDelivered ? 1 : 0);
  }

  /** A message has arrived at the other relay, so the copy here is dropped. */
  function release(messageId: string): void {
    arrivedById(messageId);
    if (state.queue.some(({ message }) => message.message_id === messageId)) dispatch({ name: 'release', messageId });
  }

  /** Operations of the mirror on messages (contract 12 §2). All changes are made and written in the turn of the call. */
  const shared = {
    join(relay: OtherRelay): void {
      other = relay;
    },

    /** True if a phone listens that may get messages. */
    isHeard: (): boolean => state.subscribers.some(mayGet),

    /** The messages that wait for a phone here. */
    waiting: (): PhoneMessage[] => state.queue.map(({ message }) => message),

    /** A message is being offered to the other relay. Returns its `seq` in the history. */
    offered(messageId: string): number {
      const seq = history.shared(messageId, true);
      void history.save();
      return seq;
    },

    /** The other relay has stored an offered message and is its custodian now, so the copy here is dropped. */
    handedOver(given: PhoneMessage): void {
      const { message_id: messageId } = given;
      const entry = state.queue.find(({ message }) => message.message_id === messageId);
      // The message was replaced meanwhile, or went to a phone.
      if (!entry || JSON.stringify(entry.message) !== JSON.stringify(given)) return;
      dispatch({ name: 'release', messageId });
      history.handedOver(messageId);
      void saveLater(queueRows, undelivered(), log);
      void history.save();
    },

    /** Accepts a message from the other relay. Resolves once it is stored, and rejects if it cannot be. */
    async take(message: PhoneMessage): Promise<void> {
      const { message_id: messageId, chat_id: chatId, title } = message;
      expire();
      const item = history.findMessage(messageId);
      const held = undelivered().find((entry) => entry.message.message_id === messageId)?.message;
      // A sender that repeats an id replaces the waiting message.
      const isNewer =
        held !== undefined &&
        held.sent_at < message.sent_at &&
        state.queue.some((entry) => entry.message === held) &&
        // An unsealed message from the edge must not replace one that home seals.
        (isUnsealed(held) || !isUnsealed(message));
      const isHeld = held !== undefined && !isNewer;
      const known = { standing: item && standingOf(item), hasArrived: delivered.has(messageId), isHeld };
      switch (reception(known)) {
        case 'tell':
          if (!item) other?.report(messageId, 'sent');
          history.retell(messageId, 'queued');
          break;
        case 'keep':
          history.shared(messageId, false);
          break;
        case 'take':
          history.message(message);
          history.shared(messageId, false);
          if (hasExpired(message, clock.now())) {
            history.became(messageId, 'expired');
            break;
          }
          dispatch({ name: 'push', entry: { seq: queueRows.next(), message } });
          if (!item) for (const link of [...mirrors]) send(link, { ...message, mirrored: true });
          log.info(`message ${messageId} for chat ${chatId ?? '-'} was given by the other relay`);
          deps.seen?.({ chatId, title, messageId, at: message.sent_at });
      }
      await Promise.all([queueRows.save(undelivered()), history.save()]);
    },

    /** The other relay reports the progress of a message. Resolves once it is stored. */
    async advance(messageId: string, standing: MessageStanding): Promise<void> {
      if (isLater(standing, 'cancelled')) {
        delivered.add(messageId);
        release(messageId);
      } else if (standing === 'cancelled') dispatch({ name: 'cancel', messageId });
      history.advance(messageId, standing);
      if (standing === 'withdrawn') remember(messageId);
      await Promise.all([queueRows.save(undelivered()), history.save()]);
    },

    /**
     * Accepts a reply that a device sent to the other relay, where a reader may have taken it (`isTaken`), with the hash of
     * the words that it answers (`shown`). Resolves once it is stored.
     */
    takeReply(reply: Reply, by: { device: string; isTaken: boolean; shown?: string }): Promise<unknown> {
      return accept(history.checked(meant(reply, by.shown)), by);
    },

    /** The other relay has stored a reply for its own readers, or one of them has taken it. */
    replyTaken: (messageId: string): Promise<unknown> =>
      replies.take(messageId).catch((error) => log.warn(`a change could not be saved: ${describeError(error)}`)),

    /** Adds a message of the edge to the history of home. Returns its `seq`; `done` resolves once it is stored. */
    adopt(
      content: MessageContent,
      standing: MessageStanding,
      isAgain: boolean,
    ): { seq: number; done: Promise<unknown> } {
      const { message_id: messageId, chat_id: chatId, title, ts } = content;
      const seq = history.adopt(content, standing, { isAgain, wasDelivered: wasDelivered(messageId) });
      /** Its sender has repeated the id at the edge: what waits here must not be delivered any more. */
      const isReplaced = ({ message }: QueuedMessage) => message.message_id === messageId && message.sent_at < ts;
      if (isLater(standing, 'cancelled')) {
        delivered.add(messageId);
        release(messageId);
      } else if (history.findMessage(messageId)?.ts === ts && state.queue.some(isReplaced)) {
        dispatch({ name: 'release', messageId });
      }
      deps.seen?.({ chatId, title, messageId, at: ts });
      return { seq, done: Promise.all([queueRows.save(undelivered()), history.save()]) };
    },

    /** Adds an old reply of the edge to the history, unless it is already there or older than everything in it. */
    adoptReply(reply: Reply): Promise<unknown> {
      if (!history.knowsReply(reply) && !history.isTooOld(reply.ts)) {
        history.reply(reply);
        history.taken(reply.message_id);
      }
      return history.save();
    },

    replySeq: history.replySeq,

    /** Home has assigned an item its `seq`. */
    async numbered(item: { kind: PhoneHistoryItem['kind']; id: string; ts: number; seq: number }): Promise<void> {
      history.number(item);
      await history.save();
    },

    /** Removes the numbers that home assigned. */
    async unnumber(): Promise<void> {
      history.unnumber();
      await history.save();
    },

    /** The whole history, in the order of arrival here. */
    items: history.all,
    toldOf,

    /** The mirror has ended. Resolves once it is stored that the messages at the other relay are given up. */
    leave(): Promise<unknown> {
      for (const item of awaited()) history.giveUp(item);
      return history.save();
    },

    /** Number of messages that wait here, or may not have arrived. */
    held: (): number => undelivered().length,

    /** The other relay has another state: reports the progress of all messages again. */
    retell(): void {
      for (const messageId of history.sharedIds()) history.retell(messageId, 'queued');
      void history.save();
    },
  };

  /** Restores the messages set aside once the clock has returned, or expires them once the clock has proved right. */
  async function settleJump(): Promise<void> {
    const entries = aside.settle();
    if (!entries) return;
    dispatch({ name: 'return', entries });
    recordDropped(entries);
    await saveQueue();
  }

  /**
   * Stores a reply for readers, passes it to the caller that waits for it, or only records it: a tap that comes too late
   * (`late`), or a reply that a reader at the other relay has taken.
   */
  async function accept(reply: Reply, { device, isTaken }: { device: string; isTaken: boolean }) {
    const { message_id: messageId, reply_to: replyTo } = reply;
    const isRepeated = history.hasReply(reply);
    const answer = asks.claim(reply, device);
    const lateness = answer ? undefined : latenessOf(reply);
    try {
      if (isRepeated && isTaken) await replies.take(messageId);
      else if (answer || isTaken || (lateness?.isVoid && !isRepeated)) {
        history.reply(reply, lateness?.reason);
        // No reader at the other relay gets it either.
        if (isTaken) history.taken(messageId);
        else markTaken(messageId);
        if (!(await history.save())) {
          history.forget(messageId);
          void history.save();
          throw notStored();
        }
      } else {
        await replies.add(reply, lateness?.reason);
        // The first one may still be on its way to the history alone.
        if (isRepeated && !(await history.save())) throw notStored();
      }
    } catch (error) {
      answer?.release();
      throw error;
    }
    // A copy was answered while the question still waited for its phone.
    if (answer && replyTo !== null) await cancel(replyTo).catch(logged);
    answer?.pass();
    if (replyTo !== null) arrivedById(replyTo);
    return lateness?.reason;
  }

  for (const messageId of abandoned) withdraw(messageId).catch(logged);
  expiry.schedule(state.queue);

  return {
    shared,

    /** `proactive.subscribe`: makes the socket the target and sends it the queue. */
    subscribe(link: PhoneLink, id: string): void {
      mirrors.delete(link);
      dispatch({ name: 'subscribe', link, id });
      // A phone that reconnects may still show them.
      for (const messageId of closed) sendEnd(link, messageId, 'withdrawn');
      void saveQueue();
    },

    /** `proactive.subscribe` with `mirror`: the socket gets copies, and is no longer a target (contract 09 §1). */
    mirror(link: PhoneLink, id: string): void {
      mirrors.add(link);
      dispatch({ name: 'leave', link });
      void saveQueue();
      link.send(CHANNEL, 'proactive.subscribed', { ts: Math.trunc(clock.now()) }, id);
    },

    isMirror: (link: PhoneLink): boolean => mirrors.has(link),

    /** `proactive.unsubscribe`, or the loss of the grant: the previous subscriber that is still open takes over. */
    leave(link: PhoneLink): void {
      const wasMirror = mirrors.delete(link);
      if (!wasMirror && !state.subscribers.includes(link)) return;
      dispatch({ name: 'leave', link });
      void saveQueue();
    },

    /** The socket has closed. Messages that may not have arrived are queued again, or go to the previous subscriber. */
    ended(link: PhoneLink): void {
      const wasMirror = mirrors.delete(link);
      const wasProbed = probed.delete(link);
      if (!wasMirror && !wasProbed && !state.subscribers.includes(link)) return;
      dispatch({ name: 'end', link });
      void saveQueue();
    },

    /** `proactive.shown`: a device has shown a message to its owner (contract 09 §1). */
    shown(link: PhoneLink, messageId: unknown): void {
      if (typeof messageId !== 'string') return;
      deps.settled?.(messageId, link.session);
      arrivedById(messageId);
      history.became(messageId, 'shown');
      void history.save();
    },

    /** The last messages and replies (contract 09 §1). */
    history(page: { since: number; limit: number }): HistoryPage {
      expire();
      void history.save();
      return history.page({ ...page, freshSince: freshSince() });
    },

    /** A `since` for everything after the present history. */
    historyEnd: history.end,

    /** Restores the subscription of a socket that survived a sleep (edge). */
    restore(link: PhoneLink): void {
      if (!subscribers) return;
      if (subscribers.wasMirror(link)) mirrors.add(link);
      const claimed = subscribers.written(unclaimed, link);
      unclaimed = unclaimed.filter((entry) => !claimed.includes(entry));
      const held = claimed.map((entry) => ({ entry, to: link }));
      dispatch({ name: 'restore', links: subscribers.restore(state.subscribers, link), held });
      for (const messageId of abandoned) sendEnd(link, messageId, 'withdrawn');
    },

    /**
     * Every socket that survived the sleep is restored: forgets the others, and queues the messages written to them again.
     */
    restored(): void {
      for (const { message } of unclaimed) history.returned(message.message_id);
      dispatch({ name: 'return', entries: unclaimed });
      unclaimed = [];
      void saveQueue();
    },

    settleJump,

    isSubscribed: (link: PhoneLink): boolean => state.subscribers.includes(link),

    /**
     * A message to the phone: sent, or stored until one subscribes (contract 04 §5.3, 5.4). `by` is the caller, for the log
     * (contract 09 §9).
     * @throws RelayError `invalid` for a bad field; `unavailable` if it had to wait and could not be stored.
     */
    push: (body: Readonly<Record<string, unknown>>, by?: string): Promise<Pushed> => push(body, { by, isAsked: false }),

    /** Asks a question and waits for the answer. */
    ask: asks.ask,

    /**
     * The state of a message once it is more than sent, or after `within` milliseconds, or when `signal` aborts. Undefined
     * for an unknown message.
     */
    async stateWithin(messageId: string, within: number, signal?: AbortSignal): Promise<MessageState | undefined> {
      const stateNow = () => history.stateOf(messageId);
      if (stateNow() !== 'sent') return stateNow();
      let watcher: (changed: string) => void = () => {};
      const changed = new Promise<void>((resolve) => {
        watcher = (id) => {
          if (id === messageId && stateNow() !== 'sent') resolve();
        };
        watchers.add(watcher);
      });
      await withTimeout({ clock, timeout: within, signal }, changed, () => {});
      watchers.delete(watcher);
      return stateNow();
    },

    /** Number of connected devices that get messages or copies now. */
    listening: (): number => [...state.subscribers, ...mirrors].filter(mayGet).length,

    /** The queued messages, first in first out, beginning with those that wait at the other relay of the mirror. */
    queued(): Pick<PhoneMessage, 'message_id' | 'chat_id' | 'text' | 'sent_at'>[] {
      expire();
      const away = awaited().map(({ ts, ...item }) => ({ ...item, sent_at: ts }));
      return [...away, ...state.queue.map(({ message }) => message)];
    },

    /**
     * Cancels a queued message, or without an id all of them. Resolves with their number once that is stored.
     * @throws RelayError `unavailable` if it is in effect, but could not be stored (contract 01 §6.7).
     */
    cancel,

    /**
     * Cancels a queued message, or an unanswered question, which devices then close (contract 09 §7). Resolves with the
     * number once that is stored.
     * @throws RelayError like `cancel`.
     */
    withdraw,

    /**
     * `proactive.reply`: acknowledged once it is stored, ignored without a text. Rejects if it cannot be stored. `late` in
     * the acknowledgement means that the question was closed before (contract 09 §7).
     */
    async reply(link: PhoneLink, payload: Payload, id: string): Promise<void> {
      const read = readReply(payload, clock.now());
      if (!read) return log.debug(`ignored a reply without text from session ${link.session.prefix}`);
      const reply = history.checked(meant(read, readShown(payload)));
      const { message_id: messageId, chat_id: chatId, text } = reply;
      const device = link.session.device.name;
      const isRepeated = history.hasReply(reply);
      // Another reply under the id of one that still waits changes nothing (contract 04 §5.5).
      const isIgnored = !isRepeated && replies.isBuffered(messageId);
      if (!isRepeated && !isIgnored && other?.replied(reply, device) === false) throw mirrorBacklog();
      let lateness: Closed | undefined;
      if (isIgnored) await replies.add(reply);
      else lateness = await accept(reply, { device, isTaken: false });
      const ts = Math.trunc(clock.now());
      const acknowledgement = { client_msg_id: messageId, status: 'received', ts, ...(lateness && { late: lateness }) };
      link.send(CHANNEL, 'proactive.reply.ack', acknowledgement, id);
      log.info(
        `reply ${messageId} of ${text.length} characters in chat ${chatId ?? '-'}${lateness ? ', too late' : ''}`,
      );
      deps.seen?.({ chatId, title: null, messageId, at: ts });
    },

    /** Unread replies (contract 04 §5.5). */
    poll: replies.poll,

    /** A reader acknowledges the replies of a lease (contract 04 §5.4a). */
    acknowledge: replies.acknowledge,

    /** Unread replies, for sockets that wait for them (contract 12 §6). */
    replies,

    /** Answers waiting polls; resolves when everything is stored. */
    async stop(): Promise<void> {
      await asks.stop();
      expiry.stop();
      cancellations.stop();
      await Promise.all([replies.stop(), saveQueue(), history.save()]);
    },
  };
}

const forWhom = (by: string | undefined): string => (by === undefined ? '' : ` for ${by}`);

/** Reads a stored message; undefined if it is not one. */
function readQueued(value: unknown): QueuedMessage | undefined {
  if (!isObject(value) || !isObject(value.message)) return undefined;
  const { seq, message } = value;
  const { sent_at: sentAt, message_id: id } = message;
  if (typeof seq !== 'number' || typeof sentAt !== 'number' || typeof id !== 'string') return undefined;
  try {
    return { seq, message: readGivenMessage(message, sentAt) };
  } catch {
    return undefined;
  }
}
