import { RelayError } from '../lib/errors.ts';
import { json, readJson } from '../lib/web/json.ts';
import type { Handler } from './request.ts';

const BODY_LIMIT = 2 * 1024 * 1024;
const MAX_CHARACTERS = 256;

/** `GET /phone/threads` (contract 04 §5.7). */
export const listThreads: Handler = async (_request, relay) => json({ threads: await relay.threads.list() });

/** `POST /phone/threads` (contract 04 §5.7): tells the relay about a chat. */
export const putThread: Handler = async (request, relay) => {
  const body = await readJson(request, { limit: BODY_LIMIT });
  const chatId = text(body, 'chat_id');
  if (chatId === undefined || chatId.trim() === '') throw new RelayError('invalid', 'chat_id must not be blank');
  const sessionId = text(body, 'session_id') ?? '';
  const title = body.title === null ? null : text(body, 'title');
  const thread = relay.threads.put({ chatId, title, at: relay.clock.now() });
  return json({ ok: true, thread: { ...thread, session_id: sessionId } });
};

function text(body: Record<string, unknown>, field: string): string | undefined {
  const value = body[field];
  if (value === undefined) return undefined;
  if (typeof value === 'string' && value.length <= MAX_CHARACTERS && value.isWellFormed()) return value;
  throw new RelayError('invalid', `${field} must be a string of at most ${MAX_CHARACTERS} characters`);
}
