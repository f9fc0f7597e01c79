import { SELECTOR_KEYS } from '../lib/bridge/selection.ts';
import { RelayError } from '../lib/errors.ts';
import { isObject, parseJson } from '../lib/kit/json.ts';
import { json, readText } from '../lib/web/json.ts';
import { type Handler, lastOf, type RelayRequest } from './request.ts';

const LIMIT = 64 * 1024;
const MAX_RECORDS = 500;
const DEFAULT_RECORDS = 100;

/** `GET /bridge/status` (contract 03 §6). */
export const bridgeStatus: Handler = (request, relay) => {
  const status = relay.bridge.status(lastOf(request.query));
  if (status) return json(status);
  const error = 'no phone connected';
  const advice = relay.bridge.advice();
  return json({ ok: false, phone_connected: false, last_seen_seconds_ago: null, error, advice }, 503);
};

/** `GET /bridge/devices` (contract 03 §6). */
export const bridgeDevices: Handler = (_request, relay) => json(relay.bridge.devices());

/** `GET /bridge/activity?limit=` (contract 03 §6). */
export const bridgeActivity: Handler = (request, relay) =>
  json({ activity: relay.bridge.activity(recordsOf(request)) });

/** `GET /desktop/activity?limit=`: the same for desktop tools (contract 09 §9). */
export const desktopActivity: Handler = (request, relay) =>
  json({ activity: relay.desktop.activity(recordsOf(request)) });

/** The number of records that the caller requests. */
function recordsOf(request: RelayRequest): number {
  const given = lastOf(request.query).limit?.trim() ?? '';
  const limit = /^\+?\d+$/.test(given) ? Number(given) : 0;
  return limit < 1 ? DEFAULT_RECORDS : Math.min(limit, MAX_RECORDS);
}

/** `POST /bridge/select-active` (contract 03 §6). */
export const selectActive: Handler = async (request, relay) => {
  const body = parse(await readText(request, LIMIT));
  const texts = SELECTOR_KEYS.map((key) => body[key]).filter((value) => typeof value === 'string');
  const selector = texts.map((text) => text.trim()).find((text) => text !== '');
  if (selector === undefined) throw new RelayError('invalid', 'missing device or device_id');
  return json({ ok: true, ...relay.bridge.select(selector) });
};

function parse(text: string): Record<string, unknown> {
  if (text === '') return {};
  const value = parseJson(text);
  if (value === undefined) throw new RelayError('invalid', 'invalid JSON');
  if (isObject(value)) return value;
  throw new RelayError('invalid', 'body must be a JSON object');
}
