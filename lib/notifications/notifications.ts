import { openRing, type RingOptions } from '../kit/ring.ts';
import { isLongerThan, type Payload } from '../socket/envelope.ts';

const MAX_STRING = 4096;
const MAX_ENTRY_BYTES = 32 * 1024;

export type Notifications = Awaited<ReturnType<typeof openNotifications>>;

/** The last 100 notifications of all paired phones. A restart forgets them (contract 00, 02 §6). */
export async function openNotifications(options: Pick<RingOptions<Payload>, 'store' | 'log'>) {
  const ring = await openRing<Payload>({ ...options, name: 'the notification ring' });
  let posted: ((notification: Payload) => void) | undefined;
  return {
    /** Sets the listener for every notification that is added. */
    onPost(listener: (notification: Payload) => void): void {
      posted = listener;
    },
    /** Adds a notification, its strings cut to 4096 characters. False if it is larger than 32 KiB as JSON. */
    post(notification: Payload): boolean {
      const entry = cutStrings(notification);
      if (isLongerThan(JSON.stringify(entry), MAX_ENTRY_BYTES)) return false;
      ring.add(entry);
      posted?.(entry);
      return true;
    },
    /** At most `limit` notifications, newest first. */
    recent: ring.list,
  };
}

const cut = (value: unknown): unknown =>
  typeof value === 'string' && value.length > MAX_STRING ? value.slice(0, MAX_STRING).toWellFormed() : value;

const cutStrings = (notification: Payload): Payload =>
  Object.fromEntries(Object.entries(notification).map(([name, value]) => [name, cut(value)]));
