import { wordsOf } from '../lib/chat/search-words.ts';
import { isSessionId } from '../lib/chat/upstream.ts';
import { RelayError } from '../lib/errors.ts';
import { json } from '../lib/web/json.ts';
import { type Handler, integerOf, lastOf, type RelayRequest } from './request.ts';

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 200;
const MAX_QUERY = 200;

/** `GET /chat/history`, `?session_id=&before=&limit=&profile=` (contract 10 §2). */
export const chatHistory: Handler = async (request, relay) => {
  const query = lastOf(request.query);
  const sessionId = query.session_id?.trim() ?? '';
  if (!isSessionId(sessionId)) throw new RelayError('invalid', 'invalid_session_id');
  const limit = limitOf(query.limit);
  const before = query.before || undefined;
  return json(await relay.history.page(familyOf(request), { sessionId, before, limit, profile: profileOf(query) }));
};

/** `GET /chat/search`, `?q=&limit=&profile=` (contract 10 §2). */
export const searchChats: Handler = async (request, relay) => {
  const query = lastOf(request.query);
  const text = query.q?.trim() ?? '';
  const length = [...text].length;
  if (length < 2 || length > MAX_QUERY || !text.isWellFormed() || text.includes('\0')) {
    throw new RelayError('invalid', `q must be a text of 2 to ${MAX_QUERY} characters`);
  }
  const limit = limitOf(query.limit);
  return json({
    hits: await relay.history.search(familyOf(request), { words: wordsOf(text), limit, profile: profileOf(query) }),
  });
};

const limitOf = (text: string | undefined): number =>
  integerOf(text || undefined, 'limit', { min: 1, max: MAX_LIMIT, otherwise: DEFAULT_LIMIT });

const profileOf = ({ profile }: Record<string, string>): string => profile?.trim() || 'default';

/** The guard admits sessions only. */
function familyOf({ session }: RelayRequest): string {
  if (!session) throw new RelayError('unauthorized', 'a valid session bearer is required');
  return session.family;
}
