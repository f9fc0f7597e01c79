import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';

/** Key of the ids of subscribed sockets, the latest last. */
const ORDER = 'order';

/**
 * Keeps who had subscribed for an object that is put away while its sockets stay open (edge). Nothing waits for a
 * write: a lost one costs a subscription that the phone renews when it connects again.
 */
export async function openSubscribers<L extends { id: string }>(store: Store<'phone-subscribers'>, log: Log) {
  const record = await store.getItem(ORDER);
  const before: string[] = Array.isArray(record?.sockets) ? record.sockets : [];
  let saved = before.join();

  return {
    save(links: readonly L[]): void {
      const sockets = links.map(({ id }) => id);
      if (sockets.join() === saved) return;
      saved = sockets.join();
      store.setItem(ORDER, { sockets }).catch((error) => {
        log.warn(`the subscriptions could not be saved: ${describeError(error)}`);
      });
    },

    /** The subscribers with this socket among them, if it was one, in the order they had. */
    restore(links: readonly L[], link: L): readonly L[] {
      if (!before.includes(link.id)) return links;
      return [...links, link].sort((a, b) => before.indexOf(a.id) - before.indexOf(b.id));
    },
  };
}
