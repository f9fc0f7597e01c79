import { RelayError } from '../lib/errors.ts';
import { json } from '../lib/web/json.ts';
import { type Handler, lastOf } from './request.ts';

/** `GET /usage/providers`, `?profile=` and `?session_id=` (contract 04 §9). */
export const providerUsage: Handler = async (request, relay) => {
  if (!relay.usage) throw new RelayError('unsupported', 'this relay runs without a host, so it has no credentials');
  if (!relay.config.providerUsageEnabled) throw new RelayError('not-found', 'provider usage is not enabled here');
  const { profile = '', session_id: sessionId = '' } = lastOf(request.query);
  return json(await relay.usage.report({ profile, sessionId }));
};
