import * as v from 'valibot';
import type { QueuedMessage, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { asObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { Held } from './delivery.ts';

/** Key of the ids of subscribed sockets, in the order of subscription. */
const ORDER = 'order';

const Ids = v.fallback(v.array(v.string()), []);
const Stored = v.object({
  sockets: Ids,
  mirrors: Ids,
  custody: v.fallback(v.record(v.string(), v.array(v.number())), {}),
});

/** The sockets that get messages, the latest last, and those that get copies. */
export interface Subscriptions<L> {
  readonly targets: readonly L[];
  readonly mirrors: ReadonlySet<L>;
  /** Messages that were written to sockets and may not have arrived. */
  readonly custody: readonly Held<L>[];
}

/**
 * Stores the subscriptions for an object that is evicted while its sockets stay open (edge). Writes are not awaited: a lost
 * one costs a subscription that the phone renews when it reconnects, or sends a message twice.
 */
export async function openSubscribers<L extends { id: string }>(store: Store<'phone-subscribers'>, log: Log) {
  const stored = v.parse(Stored, asObject(await store.getItem(ORDER)) ?? {});
  const seqsOf = (id: string): number[] => (Object.hasOwn(stored.custody, id) ? (stored.custody[id] ?? []) : []);
  let saved = JSON.stringify(stored);

  return {
    save({ targets, mirrors, custody: held }: Subscriptions<L>): void {
      const custody: Record<string, number[]> = {};
      for (const { entry, to } of held) custody[to.id] = [...(custody[to.id] ?? []), entry.seq];
      const value = { sockets: targets.map(({ id }) => id), mirrors: [...mirrors].map(({ id }) => id), custody };
      if (JSON.stringify(value) === saved) return;
      saved = JSON.stringify(value);
      store.setItem(ORDER, value).catch((error) => {
        log.warn(`the subscriptions could not be saved: ${describeError(error)}`);
      });
    },

    /** The targets, with this socket at its former place if it was one. */
    restore(links: readonly L[], link: L): readonly L[] {
      const { sockets } = stored;
      if (!sockets.includes(link.id)) return links;
      return [...links, link].sort((a, b) => sockets.indexOf(a.id) - sockets.indexOf(b.id));
    },

    /** The messages that were written to this socket. */
    written: (entries: readonly QueuedMessage[], { id }: L): QueuedMessage[] =>
      entries.filter(({ seq }) => seqsOf(id).includes(seq)),

    /** Splits stored messages into waiting ones and those written to any socket. */
    split(entries: readonly QueuedMessage[]) {
      const seqs = new Set(Object.keys(stored.custody).flatMap(seqsOf));
      return {
        queued: entries.filter(({ seq }) => !seqs.has(seq)),
        written: entries.filter(({ seq }) => seqs.has(seq)),
      };
    },

    wasMirror: ({ id }: L): boolean => stored.mirrors.includes(id),
  };
}
