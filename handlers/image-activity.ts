import { readImageActivity } from '../lib/chat/image-activity.ts';
import { RelayError } from '../lib/errors.ts';
import { knownProfile } from '../lib/profiles/home.ts';
import { json } from '../lib/web/json.ts';
import { type Handler, lastOf } from './request.ts';

const MAX_ID = 256;
/** The `+` of an exponent arrives as a space. */
const DECIMAL = /^(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][ +-]?\d+)?$/;

/** `GET /chat/image-activity`, `?session_id=&since=&profile=` (contract 04 §7). */
export const imageActivity: Handler = async (request, relay) => {
  const { host, config } = relay;
  if (!host) throw new RelayError('unsupported', 'this relay runs without a host, so it cannot see the agent');
  const query = lastOf(request.query);
  const sessionId = query.session_id?.trim() ?? '';
  if (sessionId.length < 1 || sessionId.length > MAX_ID) throw new RelayError('invalid', 'invalid_session_id');
  const since = secondsOf(query.since?.trim() ?? '');
  const profile = query.profile?.trim() || 'default';
  const { home } = await knownProfile(host.files, config, profile);
  const activities = await readImageActivity(host.databases, home, { sessionId, since });
  return json({ session_id: sessionId, profile, activities });
};

function secondsOf(text: string): number {
  const since = DECIMAL.test(text) ? Number(text.replace(' ', '+')) : Number.NaN;
  if (!Number.isFinite(since)) throw new RelayError('invalid', 'invalid_since');
  return since;
}
