import type { PhoneMessage, QueuedMessage } from '../../storage/schema.ts';

const CAPACITY = 50;
/** Milliseconds for which a message waits. */
export const RETENTION = 86_400_000;

/** `now` is epoch milliseconds. */
export const hasExpired = ({ sent_at }: PhoneMessage, now: number): boolean => now - sent_at > RETENTION;

/** The subscribed phones and the queued messages (contract 04 §5.4). `L` is the type of a phone's socket. */
export interface Delivery<L> {
  /** In the order of subscription; the last one is the target. */
  readonly subscribers: readonly L[];
  /** First in, first out. Empty between events while there is a target. */
  readonly queue: readonly QueuedMessage[];
  /** The entry that the current event pushed. It has not waited, so it does not count as backlog. */
  readonly fresh: QueuedMessage | null;
  /** The target that the queue is being written to, and the number of backlog messages sent to it. */
  readonly flush: { readonly to: L; readonly backlog: number } | null;
  /** Messages written to sockets, oldest first, until their phones prove their arrival (contract 04 §5.4a). */
  readonly custody: readonly Held<L>[];
}

/** A message that was written to a socket. Every write creates a new object. */
export interface Held<L> {
  readonly entry: QueuedMessage;
  readonly to: L;
}

export type Event<L> =
  /** `id` of the request, for its acknowledgement. */
  | { name: 'subscribe'; link: L; id: string }
  /** The socket unsubscribed, or its grant ended. */
  | { name: 'leave'; link: L }
  /** The socket has closed. */
  | { name: 'end'; link: L }
  /** Messages have arrived at their phone. */
  | { name: 'arrived'; held: readonly Held<L>[] }
  /** The sockets that had subscribed before the process slept, in order, and the messages written to one of them (edge). */
  | { name: 'restore'; links: readonly L[]; held: readonly Held<L>[] }
  /** Messages whose socket did not survive the process. */
  | { name: 'return'; entries: readonly QueuedMessage[] }
  | { name: 'push'; entry: QueuedMessage }
  /** Without an id, all messages. */
  | { name: 'cancel'; messageId?: string }
  /** The other relay of the mirror has stored the message, or has delivered it. */
  | { name: 'release'; messageId: string }
  /** Results of the last `write`. */
  | { name: 'written' }
  | { name: 'failed' }
  /** Drops expired messages. */
  | { name: 'expire' };

export type Effect<L> =
  | { do: 'acknowledge'; to: L; id: string }
  /** Must be followed by `written` or `failed` before any other event. */
  | { do: 'write'; to: L; message: PhoneMessage; queued: boolean }
  | { do: 'complete'; to: L; count: number };

export type Step<L> = readonly [Delivery<L>, readonly Effect<L>[]];

export const emptyDelivery = <L>(queue: readonly QueuedMessage[] = []): Delivery<L> => ({
  subscribers: [],
  queue,
  fresh: null,
  flush: null,
  custody: [],
});

/**
 * One step of message delivery. `now` is epoch milliseconds. A message leaves the queue only when it is `written`, and
 * returns to its place if its socket closes before the phone has proved its arrival.
 */
export function transition<L>(before: Delivery<L>, event: Event<L>, now: number): Step<L> {
  const isFresh = ({ message }: QueuedMessage) => !hasExpired(message, now);
  const state = before.queue.every(isFresh) ? before : { ...before, queue: before.queue.filter(isFresh) };
  switch (event.name) {
    case 'subscribe': {
      const others = state.subscribers.filter((other) => other !== event.link);
      const [next, effects] = proceed({ ...state, subscribers: [...others, event.link] });
      return [next, [{ do: 'acknowledge', to: event.link, id: event.id }, ...effects]];
    }
    case 'leave':
      return proceed(without(state, event.link));
    case 'end':
      return proceed(returned(without(state, event.link), event.link, isFresh));
    case 'arrived':
      return [{ ...state, custody: state.custody.filter((held) => !event.held.includes(held)) }, []];
    case 'restore':
      return [{ ...state, subscribers: event.links, custody: [...state.custody, ...event.held] }, []];
    case 'return':
      return proceed({ ...state, queue: inOrder([...event.entries.filter(isFresh), ...state.queue]) });
    case 'push':
      return proceed(pushed(state, event.entry));
    case 'release':
      return proceed({
        ...state,
        queue: state.queue.filter(({ message }) => message.message_id !== event.messageId),
      });
    case 'cancel': {
      const { messageId } = event;
      const queue =
        messageId === undefined ? [] : state.queue.filter(({ message }) => message.message_id !== messageId);
      return proceed({ ...state, queue });
    }
    case 'written': {
      const [head, ...rest] = state.queue;
      if (!head || !state.flush) return proceed(state);
      const custody = [...state.custody, { entry: head, to: state.flush.to }].slice(-CAPACITY);
      const flush = head !== state.fresh ? { ...state.flush, backlog: state.flush.backlog + 1 } : state.flush;
      return proceed({ ...state, queue: rest, flush, custody });
    }
    case 'failed': {
      const failed = state.flush?.to;
      return proceed(failed ? returned({ ...without(state, failed), flush: null }, failed, isFresh) : state);
    }
    case 'expire':
      return proceed(state);
  }
}

const inOrder = (entries: readonly QueuedMessage[]): QueuedMessage[] => [...entries].sort((a, b) => a.seq - b.seq);

const without = <L>(state: Delivery<L>, link: L): Delivery<L> => ({
  ...state,
  subscribers: state.subscribers.filter((other) => other !== link),
});

/** Returns the messages written to a socket to their places in the queue. */
function returned<L>(state: Delivery<L>, link: L, isFresh: (entry: QueuedMessage) => boolean): Delivery<L> {
  const entries = state.custody.filter(({ to }) => to === link).map(({ entry }) => entry);
  if (entries.length === 0) return state;
  const custody = state.custody.filter(({ to }) => to !== link);
  return { ...state, custody, queue: inOrder([...entries.filter(isFresh), ...state.queue]) };
}

/** Queues a message, replacing one with the same id. Behind others, it is part of their flush. */
function pushed<L>(before: Delivery<L>, entry: QueuedMessage): Delivery<L> {
  const custody = before.custody.filter((held) => held.entry.message.message_id !== entry.message.message_id);
  const state = custody.length === before.custody.length ? before : { ...before, custody };
  const at = state.queue.findIndex(({ message }) => message.message_id === entry.message.message_id);
  if (at < 0) return { ...state, queue: [...state.queue, entry], fresh: state.queue.length === 0 ? entry : null };
  return { ...state, queue: state.queue.with(at, { ...entry, seq: (state.queue[at] as QueuedMessage).seq }) };
}

/** Writes the head of the queue to the target. Without a target or a message, ends the flush. */
function proceed<L>(state: Delivery<L>): Step<L> {
  const to = state.subscribers.at(-1);
  const head = state.queue[0];
  if (to !== undefined && head !== undefined) {
    const flush = state.flush?.to === to ? state.flush : { to, backlog: 0 };
    return [{ ...state, flush }, [{ do: 'write', to, message: head.message, queued: head !== state.fresh }]];
  }
  const { flush } = state;
  const isComplete = flush !== null && flush.to === to && flush.backlog > 0;
  return [
    // The same queue as before if nothing has left it.
    {
      ...state,
      queue: state.queue.length > CAPACITY ? state.queue.slice(-CAPACITY) : state.queue,
      fresh: null,
      flush: null,
    },
    isComplete ? [{ do: 'complete', to: flush.to, count: flush.backlog }] : [],
  ];
}
