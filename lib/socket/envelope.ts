import { isObject, type JsonObject, parseObject } from '../kit/json.ts';
import { type EnvelopeHead, type TextFrame, usableId } from './envelope-head.ts';

/** A validated inbound message. */
export interface Message extends EnvelopeHead {
  payload: Payload;
  /** `payload` was present and neither null nor an object; `payload` is then `{}` (contract 02 §1.4). */
  badPayload: boolean;
}

export type Payload = JsonObject;

/** Parses a frame; null when it is not an envelope (contract 02 §1.2). */
export function parseEnvelope(text: string): Message | null {
  const value = parseObject(text);
  if (!value) return null;
  const { channel, type, id, payload } = value;
  if (typeof channel !== 'string' || typeof type !== 'string') return null;
  const usable = isObject(payload);
  return {
    channel,
    type,
    id: usableId(id),
    payload: usable ? payload : {},
    badPayload: !usable && payload !== undefined && payload !== null,
  };
}

/** Encodes an outbound frame. `extra` adds top-level members, which only `pairing/profiles.updated` has. */
export function encodeEnvelope(channel: string, type: string, payload: Payload, id: string, extra?: Payload): string {
  return JSON.stringify(extra ? { channel, type, id, payload, ...extra } : { channel, type, id, payload });
}

/**
 * Like `encodeEnvelope`, for a payload that is already JSON text. `channel` and `type` are names of the contract, which
 * need no escaping.
 */
export const encodeEnvelopeAround = (channel: string, type: string, payload: string): string =>
  `{"channel":"${channel}","type":"${type}","id":"${crypto.randomUUID()}","payload":${payload}}`;

/** Id of the pings with which a client checks that its relay is still connected. */
const ALIVE_ID = 'alive';
/**
 * Such a ping, always this text, and its answer. Constant, so that the platform at the edge answers without waking the relay
 * (contract 12 §6). On Node, `system` answers it like any other ping.
 */
export const ALIVE_PING = encodeEnvelope('system', 'ping', { ts: 0 }, ALIVE_ID);
export const ALIVE_PONG = encodeEnvelope('system', 'pong', { ts: 0 }, ALIVE_ID);
/** Payload and id for which `send('system', 'ping', ...)` sends that text. */
export const ALIVE: readonly [payload: Payload, id: string] = [{ ts: 0 }, ALIVE_ID];

const encoder = new TextEncoder();

/** True if a text has more than `limit` UTF-8 bytes. Encodes it only if its length does not decide. */
export function isLongerThan(text: TextFrame, limit: number): boolean {
  if (text.length > limit) return true;
  if (typeof text !== 'string') return false;
  return text.length * 3 > limit && encoder.encode(text).length > limit;
}
