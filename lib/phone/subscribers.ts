import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';

/** Key of the ids of subscribed sockets, in the order of subscription. */
const ORDER = 'order';

/** The sockets that get messages, the latest last, and those that get copies. */
export interface Subscriptions<L> {
  readonly targets: readonly L[];
  readonly mirrors: ReadonlySet<L>;
}

/**
 * Stores the subscriptions for an object that is evicted while its sockets stay open (edge). Nothing waits for a write: a
 * lost one costs a subscription that the phone renews when it reconnects.
 */
export async function openSubscribers<L extends { id: string }>(store: Store<'phone-subscribers'>, log: Log) {
  const record = await store.getItem(ORDER);
  const list = (value: unknown): string[] => (Array.isArray(value) ? value : []);
  const stored = { sockets: list(record?.sockets), mirrors: list(record?.mirrors) };
  let saved = JSON.stringify(stored);

  return {
    save({ targets, mirrors }: Subscriptions<L>): void {
      const value = { sockets: targets.map(({ id }) => id), mirrors: [...mirrors].map(({ id }) => id) };
      if (JSON.stringify(value) === saved) return;
      saved = JSON.stringify(value);
      store.setItem(ORDER, value).catch((error) => {
        log.warn(`the subscriptions could not be saved: ${describeError(error)}`);
      });
    },

    /** The targets, with this socket in its former place if it was one. */
    restore(links: readonly L[], link: L): readonly L[] {
      const { sockets } = stored;
      if (!sockets.includes(link.id)) return links;
      return [...links, link].sort((a, b) => sockets.indexOf(a.id) - sockets.indexOf(b.id));
    },

    wasMirror: ({ id }: L): boolean => stored.mirrors.includes(id),
  };
}
