import { json, readJson } from '../lib/web/json.ts';
import { type Handler, lastOf } from './request.ts';

/** Contract 04 §1.2. */
const LIMIT = 2 * 1024 * 1024;
const DEFAULT_TIMEOUT = 25;
const MAX_TIMEOUT = 30;
const SHOWN_TEXT = 200;

/** `POST /phone/message`, and `POST /phone/outbound`, which is the same (contract 04 §5.3, 5.6). */
export const postMessage: Handler = async (request, relay) => {
  const pushed = await relay.phone.push(await readJson(request, { limit: LIMIT }));
  const { delivered, messageId } = pushed;
  if (delivered) return json({ delivered, message_id: messageId });
  return json({ delivered, queued: true, message_id: messageId, buffered: pushed.buffered });
};

/**
 * `GET /phone/replies?timeout=` (contract 04 §5.5). Beyond the contract, a reader that waits for one answer may say
 * which: `chat_id`, `reply_to` (one of them must match) and `since` (epoch ms). It takes these replies, before readers
 * that take any, and leaves the others alone. `HEAD` takes nothing.
 */
export const takeReplies: Handler = async (request, relay) => {
  if (request.method === 'HEAD') return json({ replies: [] });
  const query = lastOf(request.query);
  const { chat_id: chatId, reply_to: replyTo } = query;
  const since = number(query.since);
  const isParticular = chatId !== undefined || replyTo !== undefined || since !== undefined;
  const replies = await relay.phone.poll({
    timeout: Math.min(Math.max(number(query.timeout) ?? DEFAULT_TIMEOUT, 0), MAX_TIMEOUT) * 1000,
    signal: request.signal,
    wanted: isParticular ? { chatId, replyTo, since } : undefined,
  });
  return json({ replies });
};

/** `GET /phone/outbound`: what waits for a phone (contract 04 §5.6). */
export const listOutbound: Handler = (_request, relay) => {
  const messages = relay.phone.queued().map(({ message_id, chat_id, text, sent_at }) => ({
    message_id,
    chat_id,
    text: text.slice(0, SHOWN_TEXT).toWellFormed(),
    sent_at,
  }));
  return json({ queued: messages.length, messages });
};

/** `DELETE /phone/outbound?message_id=`: takes back one message that waits, or all of them (contract 04 §5.6). */
export const cancelOutbound: Handler = async (request, relay) =>
  json({ cancelled: await relay.phone.cancel(lastOf(request.query).message_id) });

/** A finite number; undefined for anything else, also for nothing between `=` and `&`. */
function number(text: string | undefined): number | undefined {
  const value = text === undefined || text.trim() === '' ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value : undefined;
}
