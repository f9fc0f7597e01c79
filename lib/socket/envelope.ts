import { isObject, type JsonObject, parseObject } from '../kit/json.ts';

/** An inbound message, checked. `payload` is as it came when it is no object, so that a channel can say so. */
export interface Message {
  channel: string;
  type: string;
  /** The client's id, or a fresh one where it gave none that may be echoed. */
  id: string;
  payload: Payload;
  /** `payload` was present and neither null nor an object; `payload` is then `{}` (contract 02 §1.4). */
  badPayload: boolean;
}

export type Payload = JsonObject;

/** A message's envelope (contract 02 §1.2), or null for a frame that is none. */
export function parseEnvelope(text: string): Message | null {
  const value = parseObject(text);
  if (!value) return null;
  const { channel, type, id, payload } = value;
  if (typeof channel !== 'string' || typeof type !== 'string') return null;
  const usable = isObject(payload);
  return {
    channel,
    type,
    id: typeof id === 'string' && id.length >= 1 && id.length <= 256 ? id : crypto.randomUUID(),
    payload: usable ? payload : {},
    badPayload: !usable && payload !== undefined && payload !== null,
  };
}

/** The outbound frame. `extra` adds top-level members: only `pairing/profiles.updated` has any. */
export function encodeEnvelope(channel: string, type: string, payload: Payload, id: string, extra?: Payload): string {
  return JSON.stringify(extra ? { channel, type, id, payload, ...extra } : { channel, type, id, payload });
}

/**
 * As `encodeEnvelope`, around a payload that is the text of a JSON object already: it is passed on as it is. `channel`
 * and `type` are names of the contract, which need no escaping.
 */
export const encodeEnvelopeAround = (channel: string, type: string, payload: string): string =>
  `{"channel":"${channel}","type":"${type}","id":"${crypto.randomUUID()}","payload":${payload}}`;

const encoder = new TextEncoder();

/** Whether a text has more than `limit` UTF-8 bytes, without encoding the ones that obviously have not. */
export function isLongerThan(text: string, limit: number): boolean {
  if (text.length > limit) return true;
  return text.length * 3 > limit && encoder.encode(text).length > limit;
}
