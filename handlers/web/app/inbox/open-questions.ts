import type { Item } from './items.ts';

/**
 * Ids of the messages that were answered, as far as the replies say. What is answered at the mailbox stays open in the history of
 * home until home is back, and the edge may have no such message.
 */
export const answeredBy = (
  items: readonly Pick<Item, 'kind' | 'replyTo'>[],
  waiting: readonly { reply_to: string | null }[],
): ReadonlySet<string | null> =>
  new Set([
    ...waiting.map(({ reply_to }) => reply_to),
    ...items.filter(({ kind }) => kind === 'reply').map(({ replyTo }) => replyTo),
  ]);
