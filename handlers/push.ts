import type { Session } from '../lib/sessions/session.ts';
import { json, readJson } from '../lib/web/json.ts';
import type { Handler } from './request.ts';

/** Bytes of a subscription, whose endpoint has at most 2,048 characters. */
const LIMIT = 8 * 1024;

/** `GET /push/key`: the public key with which a device subscribes (contract 09 §6). */
export const pushKey: Handler = async (request, relay) => json({ key: await relay.push.publicKey(request.session) });

/** `GET /push/status`: whether notifications reach devices, for the doctor. */
export const pushStatus: Handler = (_request, relay) => json(relay.push.status());

/** `POST /push/subscribe`: subscribes this device to notifications (contract 09 §6). */
export const subscribePush: Handler = async (request, relay) => {
  await relay.push.subscribe(request.session as Session, await readJson(request, { limit: LIMIT }));
  return json({ ok: true });
};

/** `DELETE /push/subscribe`: unsubscribes. `removed` is false if this device had no such subscription. */
export const unsubscribePush: Handler = async (request, relay) => {
  const { endpoint } = await readJson(request, { limit: LIMIT });
  return json({ ok: true, removed: await relay.push.unsubscribe(request.session as Session, endpoint) });
};
