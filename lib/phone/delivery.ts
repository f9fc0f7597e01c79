import type { PhoneMessage, QueuedMessage } from '../../storage/schema.ts';

const CAPACITY = 50;
/** How long a message waits, milliseconds. */
export const RETENTION = 86_400_000;

/** The subscribed phones and the queued messages (contract 04 §5.4). `L` is the type of a phone's socket. */
export interface Delivery<L> {
  /** In the order of subscription; the last one is the target. */
  readonly subscribers: readonly L[];
  /** First in, first out. Empty between events while there is a target. */
  readonly queue: readonly QueuedMessage[];
  /** The entry that the current event pushed: it has not waited, so it is not backlog. */
  readonly fresh: QueuedMessage | null;
  /** The target that the queue is being written to, and how many backlog messages it has got. */
  readonly flush: { readonly to: L; readonly backlog: number } | null;
}

export type Event<L> =
  /** `id` of the request, for its acknowledgement. */
  | { name: 'subscribe'; link: L; id: string }
  /** The socket unsubscribed or closed, or its session ended. */
  | { name: 'leave'; link: L }
  /** The sockets that had subscribed before the process slept, in their order (edge). */
  | { name: 'restore'; links: readonly L[] }
  | { name: 'push'; entry: QueuedMessage }
  /** Without an id, all messages. */
  | { name: 'cancel'; messageId?: string }
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
});

/**
 * One step of message delivery. `now` is epoch milliseconds. A message leaves the queue only when it is `written`:
 * messages that a failed flush did not send keep their places.
 */
export function transition<L>(before: Delivery<L>, event: Event<L>, now: number): Step<L> {
  const isFresh = ({ message }: QueuedMessage) => now - message.sent_at <= RETENTION;
  const state = before.queue.every(isFresh) ? before : { ...before, queue: before.queue.filter(isFresh) };
  switch (event.name) {
    case 'subscribe': {
      const others = state.subscribers.filter((other) => other !== event.link);
      const [next, effects] = proceed({ ...state, subscribers: [...others, event.link] });
      return [next, [{ do: 'acknowledge', to: event.link, id: event.id }, ...effects]];
    }
    case 'leave':
      return proceed({ ...state, subscribers: state.subscribers.filter((other) => other !== event.link) });
    case 'restore':
      return [{ ...state, subscribers: event.links }, []];
    case 'push':
      return proceed(pushed(state, event.entry));
    case 'cancel': {
      const { messageId } = event;
      const queue =
        messageId === undefined ? [] : state.queue.filter(({ message }) => message.message_id !== messageId);
      return proceed({ ...state, queue });
    }
    case 'written': {
      const [head, ...rest] = state.queue;
      const flush = state.flush && head !== state.fresh ? { ...state.flush, backlog: state.flush.backlog + 1 } : null;
      return proceed({ ...state, queue: rest, flush: flush ?? state.flush });
    }
    case 'failed': {
      const failed = state.flush?.to;
      return proceed({ ...state, subscribers: state.subscribers.filter((other) => other !== failed), flush: null });
    }
    case 'expire':
      return proceed(state);
  }
}

/** Queues a message. It replaces a queued one of the same id; behind others it is part of their flush. */
function pushed<L>(state: Delivery<L>, entry: QueuedMessage): Delivery<L> {
  const at = state.queue.findIndex(({ message }) => message.message_id === entry.message.message_id);
  if (at < 0) return { ...state, queue: [...state.queue, entry], fresh: state.queue.length === 0 ? entry : null };
  return { ...state, queue: state.queue.with(at, { ...entry, seq: (state.queue[at] as QueuedMessage).seq }) };
}

/** Writes the head of the queue to the target; without a target or a message, ends the flush. */
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
    { ...state, queue: state.queue.slice(-CAPACITY), fresh: null, flush: null },
    isComplete ? [{ do: 'complete', to: flush.to, count: flush.backlog }] : [],
  ];
}
