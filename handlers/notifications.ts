import { RelayError } from '../lib/errors.ts';
import { json } from '../lib/web/json.ts';
import type { Handler, RelayRequest } from './request.ts';

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 100;

/** `GET /notifications/recent`, `?limit=1..100` (contract 02 §6). */
export const recentNotifications: Handler = (request, relay) => {
  const notifications = relay.notifications.recent(limitOf(request));
  return json({ ok: true, notifications, count: notifications.length });
};

function limitOf({ query }: RelayRequest): number {
  const [text] = [query.limit].flat();
  if (text === undefined) return DEFAULT_LIMIT;
  // A leading `+` arrives as a space.
  if (!/^[+-]?\d+$/.test(text.trim())) throw new RelayError('invalid', 'limit must be an integer');
  const limit = Number(text);
  if (limit < 1) throw new RelayError('invalid', 'limit must be >= 1');
  return Math.min(limit, MAX_LIMIT);
}
