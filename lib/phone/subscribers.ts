import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';

/** Key of the ids of subscribed sockets, in the order of subscription. */
const ORDER = 'order';

/**
 * Stores the subscriptions for an object that is evicted while its sockets stay open (edge). Nothing waits for a write: a
 * lost one costs a subscription that the phone renews when it reconnects.
 */
export async function openSubscribers<L extends { id: string }>(store: Store<'phone-subscribers'>, log: Log) {
  const record = await store.getItem(ORDER);
  const stored: string[] = Array.isArray(record?.sockets) ? record.sockets : [];
  let saved = stored.join();

  return {
    save(links: readonly L[]): void {
      const sockets = links.map(({ id }) => id);
      if (sockets.join() === saved) return;
      saved = sockets.join();
      store.setItem(ORDER, { sockets }).catch((error) => {
        log.warn(`the subscriptions could not be saved: ${describeError(error)}`);
      });
    },

    /** The subscribers, with this socket in its former place if it was one. */
    restore(links: readonly L[], link: L): readonly L[] {
      if (!stored.includes(link.id)) return links;
      return [...links, link].sort((a, b) => stored.indexOf(a.id) - stored.indexOf(b.id));
    },
  };
}
