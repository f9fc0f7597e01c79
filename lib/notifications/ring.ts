import { isLongerThan, type Payload } from '../socket/envelope.ts';

const SIZE = 100;
const MAX_STRING = 4096;
const MAX_ENTRY = 32 * 1024;

/** The last notifications of all paired phones. In memory only: they are nobody's to keep (contract 02 §6). */
export interface Notifications {
  /** Keeps one, its long texts cut to 4096 characters. False when it is too large (32 KiB as JSON) to be kept. */
  post(notification: Payload): boolean;
  /** At most `limit` of them, the newest first. */
  recent(limit: number): Payload[];
}

export function createNotifications(): Notifications {
  /** The oldest first. */
  const entries: Payload[] = [];
  return {
    post(notification) {
      const entry = cutStrings(notification);
      if (isLongerThan(JSON.stringify(entry), MAX_ENTRY)) return false;
      entries.push(entry);
      if (entries.length > SIZE) entries.shift();
      return true;
    },
    recent: (limit) => entries.slice(-limit).reverse(),
  };
}

const cut = (value: unknown): unknown =>
  typeof value === 'string' && value.length > MAX_STRING ? value.slice(0, MAX_STRING).toWellFormed() : value;

const cutStrings = (notification: Payload): Payload =>
  Object.fromEntries(Object.entries(notification).map(([name, value]) => [name, cut(value)]));
