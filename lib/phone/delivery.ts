import type { PhoneMessage, QueuedMessage } from '../../storage/schema.ts';

const CAPACITY = 50;
const KEPT = 86_400_000;

/** Who gets messages, and which ones wait (contract 04 §5.4). `L` stands for a phone's socket. */
export interface Delivery<L> {
  /** The one that subscribed last is at the end, and is the target. */
  readonly subscribers: readonly L[];
  /** First in, first out. With a target it is empty as soon as an event is dealt with. */
  readonly queue: readonly QueuedMessage[];
  /** The entry that was pushed by this very event: it has not waited, so it is no backlog. */
  readonly fresh: QueuedMessage | null;
  /** Whom the queue is being written to, and how much of the backlog that was so far. */
  readonly flush: { readonly to: L; readonly backlog: number } | null;
}

export type Event<L> =
  /** `id` of the request, for its acknowledgement. */
  | { name: 'subscribe'; link: L; id: string }
  /** Unsubscribed, closed, or its session is over. */
  | { name: 'leave'; link: L }
  /** These sockets had subscribed, in this order, before the process slept (edge). */
  | { name: 'restore'; links: readonly L[] }
  | { name: 'push'; entry: QueuedMessage }
  /** Without an id, everything. */
  | { name: 'cancel'; messageId?: string }
  /** What became of the last `write`. */
  | { name: 'written' }
  | { name: 'failed' }
  /** Time has passed. */
  | { name: 'look' };

export type Effect<L> =
  | { do: 'acknowledge'; to: L; id: string }
  /** Is to be answered by `written` or `failed` before any other event. */
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
 * One step of the delivery of messages. `now` is epoch milliseconds. A message leaves the queue only when it is
 * `written`: what a failed flush did not send is where it was, in its order.
 */
export function transition<L>(before: Delivery<L>, event: Event<L>, now: number): Step<L> {
  const isFresh = ({ message }: QueuedMessage) => now - message.sent_at <= KEPT;
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
    case 'look':
      return proceed(state);
  }
}

/** A message whose id still waits takes the place of that one; one behind others is part of their flush. */
function pushed<L>(state: Delivery<L>, entry: QueuedMessage): Delivery<L> {
  const at = state.queue.findIndex(({ message }) => message.message_id === entry.message.message_id);
  if (at < 0) return { ...state, queue: [...state.queue, entry], fresh: state.queue.length === 0 ? entry : null };
  return { ...state, queue: state.queue.with(at, { ...entry, seq: (state.queue[at] as QueuedMessage).seq }) };
}

/** Writes the head of the queue to the target; without one, or with nothing to write, comes to rest. */
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
