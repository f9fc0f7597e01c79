import { RelayError } from '../lib/errors.ts';
import { actorText } from '../lib/operations/actor.ts';
import { PHONE_GRANT } from '../lib/phone/phone.ts';
import { BODY_LIMIT, json, readJson } from '../lib/web/json.ts';
import { actorOf } from './actor.ts';
import { hasGrant, operatorOrPaired, operatorTokenEnd } from './guards.ts';
import { type Handler, hangUpOf, integerOf, lastOf } from './request.ts';
import type { SocketRow } from './sockets.ts';

/** Bytes of a body (contract 04 §1.2). */
const LIMIT = 2 * 1024 * 1024;
/** Seconds. */
const DEFAULT_TIMEOUT = 25;
const MAX_TIMEOUT = 30;
/** Seconds of a lease of replies. */
const MIN_LEASE = 1;
const MAX_LEASE = 300;
const MAX_LEASE_ID = 128;
/** Items of the history in one answer. */
const DEFAULT_PAGE = 100;
const MAX_PAGE = 200;
/** Characters of a queued message in a list. */
const MAX_PREVIEW = 200;

/** `POST /phone/message` and its alias `POST /phone/outbound` (contract 04 §5.3, 5.6). */
export const postMessage: Handler = async (request, relay) => {
  const pushed = await relay.phone.push(await readJson(request, { limit: LIMIT }), actorText(actorOf(request, relay)));
  const { delivered, messageId } = pushed;
  if (delivered) return json({ delivered, ...(pushed.isDuplicate && { duplicate: true }), message_id: messageId });
  return json({ delivered, queued: true, message_id: messageId, buffered: pushed.buffered });
};

/**
 * `GET /phone/replies?timeout=` (contract 04 §5.5). Beyond the contract, a reader that waits for one reply may select it:
 * `chat_id` or `reply_to` must match, and `since` (epoch ms) is its earliest time. Such a reader takes precedence over
 * readers of all replies, and leaves other replies alone. `HEAD` takes nothing.
 *
 * With `lease=<seconds>`, 1 to 300, unacknowledged replies are available again after that time; without it they are taken
 * once the whole response has been written (§5.4a).
 */
export const takeReplies: Handler = async (request, relay) => {
  if (request.method === 'HEAD') return json({ replies: [] });
  const query = lastOf(request.query);
  const { chat_id: chatId, reply_to: replyTo } = query;
  const since = number(query.since);
  const isSelective = chatId !== undefined || replyTo !== undefined || since !== undefined;
  const lease = query.lease === undefined ? undefined : number(query.lease);
  if (query.lease !== undefined && lease === undefined) {
    throw new RelayError('invalid', 'lease must be a number of seconds');
  }
  const { replies, leaseId, sent } = await relay.phone.poll({
    timeout: Math.min(Math.max(number(query.timeout) ?? DEFAULT_TIMEOUT, 0), MAX_TIMEOUT) * 1000,
    signal: hangUpOf(request),
    mayRead: () => hasGrant(request, relay, PHONE_GRANT),
    wanted: isSelective ? { chatId, replyTo, since } : undefined,
    lease: lease === undefined ? undefined : Math.min(Math.max(lease, MIN_LEASE), MAX_LEASE) * 1000,
  });
  const response = json({ replies, ...(leaseId !== undefined && { lease_id: leaseId }) });
  response.sent = sent;
  return response;
};

/**
 * `GET /phone/replies` with an upgrade: each reply is a frame, which the reader takes by acknowledging it (contract 12 §6,
 * §7).
 */
export const repliesSocket: SocketRow = {
  path: '/phone/replies',
  isRoute: true,
  guard: operatorOrPaired(PHONE_GRANT),
  maxMessage: 1024 * 1024,
  binary: false,
  open: (request, socket, { replyReaders }) => replyReaders.open(socket, request.session, operatorTokenEnd(request)),
  restore: async (socket, { replyReaders }) => replyReaders.restore(socket),
};

/** `POST /phone/replies/ack`: takes the replies of a lease. `taken` is 0 if they were taken before (contract 04 §5.4a). */
export const acknowledgeReplies: Handler = async (request, relay) => {
  const { lease_id: id } = await readJson(request, { limit: BODY_LIMIT });
  if (typeof id !== 'string' || id === '' || id.length > MAX_LEASE_ID) {
    throw new RelayError('invalid', `lease_id must be a string of 1 to ${MAX_LEASE_ID} characters`);
  }
  return json({ ok: true, taken: await relay.phone.acknowledge(id) });
};

/** `GET /phone/outbound`: lists the queued messages (contract 04 §5.6). */
export const listOutbound: Handler = (_request, relay) => {
  const messages = relay.phone.queued().map(({ message_id, chat_id, text, sent_at }) => ({
    message_id,
    chat_id,
    text: text.slice(0, MAX_PREVIEW).toWellFormed(),
    sent_at,
  }));
  return json({ queued: messages.length, messages });
};

/**
 * `DELETE /phone/outbound?message_id=`: cancels one message, or all queued ones without an id (contract 04 §5.6). With the
 * id of a question that a phone already has, withdraws the question unless it is answered (09 §7).
 */
export const cancelOutbound: Handler = async (request, relay) => {
  const { message_id: id } = lastOf(request.query);
  const by = actorText(actorOf(request, relay));
  return json({
    cancelled: await (id === undefined ? relay.phone.cancel(id, by) : relay.phone.withdraw(id, by)),
  });
};

/** `GET /phone/history?since=&limit=`: the last messages and replies, with their states (contract 09 §1). */
export const phoneHistory: Handler = (request, relay) => {
  const query = lastOf(request.query);
  const since = integerOf(query.since, 'since', { min: 0, otherwise: 0 });
  const limit = integerOf(query.limit, 'limit', { min: 1, max: MAX_PAGE, otherwise: DEFAULT_PAGE });
  return json(relay.phone.history({ since, limit }));
};

/** A finite number; undefined for anything else, including an empty value. */
function number(text: string | undefined): number | undefined {
  const value = text === undefined || text.trim() === '' ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value : undefined;
}
