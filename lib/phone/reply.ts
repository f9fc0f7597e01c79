import type { Reply, StoredReply } from '../../storage/schema.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { isObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import { newMessageId } from './message.ts';
import { sanitizeMetadata } from './metadata.ts';
import { MAX_ANSWERS } from './question.ts';
import { sealedOf, UNSEALED } from './sealed.ts';

const MAX_TEXT = 1024 * 1024;
const MAX_LABEL = 256;

/**
 * Reads `proactive.reply`, its text cut to 1 MiB of UTF-8; undefined without a text, and for a sealed one that cannot be
 * read. The caller has to check its `answer_index` against the answers of the message.
 */
export function readReply(payload: Payload, now: number): Reply | undefined {
  const { text, message_id: id, ts, answer_index: index } = payload;
  const sealed = sealedOf(payload);
  if (typeof text !== 'string' || text.trim() === '' || !sealed) return undefined;
  const messageId = typeof id === 'number' ? String(id) : id;
  const isUsable = typeof messageId === 'string' && messageId !== '' && messageId.length <= MAX_LABEL;
  return {
    text: cut(text),
    chat_id: label(payload.chat_id),
    reply_to: label(payload.reply_to),
    message_id: isUsable ? messageId : newMessageId(),
    metadata: sanitizeMetadata(payload.metadata),
    ts: Math.trunc(typeof ts === 'number' && Number.isFinite(ts) ? ts : now),
    ...(isIndex(index) && { answer_index: index }),
    ...sealed,
  };
}

/** Home's form of a reply that arrived unsealed at the edge: it answers no message, and states its origin. */
export const unsealedReply = ({ text }: Pick<Reply, 'text'>) => ({
  chat_id: null,
  reply_to: null,
  text: cut(`A reply from the edge. ${UNSEALED}${text}`),
});

const isIndex = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < MAX_ANSWERS;

const label = (value: unknown): string | null => (typeof value === 'string' ? value.slice(0, MAX_LABEL) : null);

/** Cuts a text to the limit, never inside a character. */
function cut(text: string): string {
  if (text.length * 3 <= MAX_TEXT) return text;
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(MAX_TEXT));
  return text.slice(0, read);
}

export const sizeOf = (reply: Reply): number => utf8ToBytes(JSON.stringify(reply)).length;

/** Reads a stored reply; undefined if it is not one. */
export function readStoredReply(value: unknown): StoredReply | undefined {
  if (!isObject(value) || !isObject(value.reply)) return undefined;
  const { seq, arrived, reply, lease } = value;
  if (typeof seq !== 'number' || typeof arrived !== 'number' || typeof reply.ts !== 'number') return undefined;
  const read = readReply(reply, arrived);
  const isLease = isObject(lease) && typeof lease.id === 'string' && typeof lease.until === 'number';
  return (
    read && {
      seq,
      reply: read,
      arrived,
      bytes: sizeOf(read),
      ...(isLease && { lease: { id: lease.id as string, until: lease.until as number } }),
    }
  );
}
