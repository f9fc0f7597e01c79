import { bytesToHex, randomBytes } from '../../../../lib/kit/bytes.ts';
import type { Shown } from '../../../../lib/phone/shown.ts';
import { type Channel, openChannel } from '../browser-storage.ts';
import type { PageStore } from '../page-store.ts';

/** A reply until the relay has acknowledged it, in its wire form (contract 04 §5.1). */
export interface WaitingReply {
  /** The same at every attempt, so that the relay stores it once. */
  message_id: string;
  text: string;
  chat_id: string | null;
  reply_to: string | null;
  /** Index of the offered answer (contract 09 §10). */
  answer_index?: number;
  /** Epoch ms. */
  ts: number;
  /** True for a reply to an unsealed message, whose sender cannot open seals. Not sent to the relay. */
  plain?: boolean;
  /** Hash of the message as shown here (contract 12 §4). Absent over plain http. */
  shown?: string;
}

/** `asked` is the message as shown here. */
export type NewReply = Pick<WaitingReply, 'text' | 'chat_id' | 'reply_to' | 'answer_index' | 'plain'> & {
  asked?: Shown;
};

const NAME = 'outbox';
const MAX_WAITING = 100;
/** Bytes of a reply's text that the relay accepts; a longer text would be cut. */
const MAX_TEXT = 256 * 1024;

/**
 * Replies that wait for the relay's acknowledgement, stored across pages and restarts of the browser. `hashOf` is that of
 * `sealing.ts`.
 */
export const createOutbox = (pageStore: PageStore, hashOf: (shown: Shown) => Promise<string | undefined>) => ({
  list: async (): Promise<readonly WaitingReply[]> => (await pageStore.read<WaitingReply[]>(NAME)) ?? [],

  /** @throws Error worded for people, if too many are waiting. */
  async add({ text, chat_id, reply_to, answer_index, plain, asked }: NewReply): Promise<WaitingReply> {
    const reply = {
      message_id: bytesToHex(randomBytes(6)),
      text: text.slice(0, MAX_TEXT).toWellFormed(),
      chat_id,
      reply_to,
      ...(answer_index !== undefined && { answer_index }),
      ts: Date.now(),
      ...(plain && { plain }),
      ...(asked && { shown: await hashOf(asked) }),
    };
    const waiting = await pageStore.change<WaitingReply[]>(NAME, (replies = []) =>
      replies.length < MAX_WAITING ? [...replies, reply] : replies,
    );
    if (!waiting.some(({ message_id }) => message_id === reply.message_id)) {
      throw new Error('Too many replies wait for the relay. Connect first.');
    }
    return reply;
  },

  remove: (ids: ReadonlySet<string>): Promise<readonly WaitingReply[]> =>
    pageStore.change<WaitingReply[]>(NAME, (replies = []) => replies.filter(({ message_id }) => !ids.has(message_id))),
});

/** Notifies pages and the service worker of this relay that the outbox has changed, or a message was read. */
export const inboxChannel = (base: string): Channel => openChannel(`inbox ${new URL(base).pathname}`);
