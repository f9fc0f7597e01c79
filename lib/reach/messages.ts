import { isObject, type JsonObject, parseObject } from '../kit/json.ts';
import { utf8Length } from '../kit/text.ts';
import { isDigest, isId, isToken } from './ids.ts';

export const PROTOCOL_VERSION = 1;
/** UTF-8 bytes of the largest control message (contract 08 §7.3). */
export const MAX_CONTROL = 4096;
/** Uses of a bootstrap credential. */
export const MAX_USES = 8;

/** Errors that the broker sends before it closes with 1008 (contract 08 §7.3). */
const ERROR_CODES = [
  'unauthorized',
  'unsupported_version',
  'replayed',
  'expired',
  'host_offline',
  'host_busy',
  'quota_exceeded',
] as const;
export type ErrorCode = (typeof ERROR_CODES)[number];

export type ClientKind = 'bootstrap' | 'route';

/** First message of a host or a client. */
export interface Register {
  role: 'host' | 'client';
  host_id: string;
  connection_id: string;
  credential_kind: 'host' | ClientKind;
  token: string;
}

/** Messages of a registered host. `expires_at` is epoch seconds. */
export type HostMessage =
  | { type: 'publish_bootstrap'; pairing_id: string; token_sha256: string; expires_at: number; max_uses: number }
  | {
      type: 'publish_route';
      credential_id: string;
      token_sha256: string;
      expires_at: number;
      device_id_hash: string;
    }
  | { type: 'revoke'; credential_kind: 'route'; credential_id: string }
  | { type: 'flow'; window: number };

/** Offer of flow control: bytes that each side of a stream may send before it gets further credit (contract 08 §7.6). */
export interface FlowOffer {
  version: 1;
  window: number;
}

/** Messages of the broker to a host. */
export type BrokerMessage =
  | { type: 'registered'; flow?: FlowOffer }
  | { type: 'published'; credential_kind: 'bootstrap'; pairing_id: string }
  | { type: 'published'; credential_kind: 'route'; credential_id: string }
  | { type: 'revoked'; credential_kind: 'route'; credential_id: string }
  | { type: 'open'; stream_id: string; host_connection_id: string }
  | { type: 'error'; code: string };

/** The one message of the broker to a client. Clients refuse any further key. */
export type ClientAnswer = { type: 'matched'; stream_id: string } | { type: 'error'; code: string };

/**
 * A ping of either role once it has registered, always this text, and its answer. Constant, so that the platform at the edge
 * answers it without waking the broker (contract 12 §6).
 */
export const PING = JSON.stringify({ type: 'ping', protocol_version: PROTOCOL_VERSION });
export const PONG = JSON.stringify({ type: 'pong', protocol_version: PROTOCOL_VERSION });

/** Text of a message, with the protocol version that every message carries. */
export function encodeMessage(
  message: ({ type: 'register' } & Register) | HostMessage | BrokerMessage | ClientAnswer,
): string {
  const { type, ...members } = message;
  return JSON.stringify({ type, protocol_version: PROTOCOL_VERSION, ...members });
}

/** The first message, or the code with which a broker refuses it. */
export function parseRegister(text: string): Register | Extract<ErrorCode, 'unauthorized' | 'unsupported_version'> {
  const message = parseControl(text);
  const keys = ['role', 'host_id', 'connection_id', 'credential_kind', 'token'];
  if (message?.type !== 'register' || !hasExactly(message, keys)) return 'unauthorized';
  const { role, host_id, connection_id, credential_kind, token } = message;
  const kinds = role === 'host' ? ['host'] : role === 'client' ? ['bootstrap', 'route'] : [];
  if (!kinds.includes(credential_kind as string)) return 'unauthorized';
  if (!isId(host_id) || !isId(connection_id) || !isToken(token)) return 'unauthorized';
  // A version that is not a number is a wrong shape.
  if (typeof message.protocol_version !== 'number') return 'unauthorized';
  if (message.protocol_version !== PROTOCOL_VERSION) return 'unsupported_version';
  return { role, host_id, connection_id, credential_kind, token } as Register;
}

const HOST_KEYS = {
  publish_bootstrap: ['pairing_id', 'token_sha256', 'expires_at', 'max_uses'],
  publish_route: ['credential_id', 'token_sha256', 'expires_at', 'device_id_hash'],
  revoke: ['credential_kind', 'credential_id'],
  flow: ['window'],
} as const satisfies Record<HostMessage['type'], readonly string[]>;

/** A control message of a host, or null if it is invalid. The caller checks its expiry. */
export function parseHostMessage(text: string): HostMessage | null {
  const message = parseControl(text);
  const type = message?.type;
  if (!message || typeof type !== 'string' || !Object.hasOwn(HOST_KEYS, type)) return null;
  const kind = type as HostMessage['type'];
  if (message.protocol_version !== PROTOCOL_VERSION || !hasExactly(message, HOST_KEYS[kind])) return null;
  const { protocol_version: _, ...members } = message;
  if ('expires_at' in members) members.expires_at = epochSeconds(members.expires_at);
  return isHostMessage(kind, members) ? (members as HostMessage) : null;
}

function isHostMessage(type: HostMessage['type'], message: JsonObject): boolean {
  const { token_sha256, expires_at, max_uses, device_id_hash, window } = message;
  switch (type) {
    case 'publish_bootstrap':
      return (
        isName(message.pairing_id) && isDigest(token_sha256) && expires_at !== null && isWithin(max_uses, MAX_USES)
      );
    case 'publish_route':
      return isName(message.credential_id) && isDigest(token_sha256) && expires_at !== null && isDigest(device_id_hash);
    case 'revoke':
      return message.credential_kind === 'route' && isName(message.credential_id);
    case 'flow':
      return isWithin(window, 0xffffffff);
  }
}

/** A message of the broker to a host; null for an unknown one. Further keys are tolerated. */
export function parseBrokerMessage(text: string): BrokerMessage | null {
  const message = parseControl(text);
  if (message?.protocol_version !== PROTOCOL_VERSION) return null;
  const { type, credential_kind, pairing_id, credential_id, stream_id, host_connection_id, code } = message;
  if (type === 'registered') return isFlowOffer(message.flow) ? { type, flow: message.flow } : { type };
  if (type === 'published' && credential_kind === 'bootstrap' && isName(pairing_id))
    return { type, credential_kind, pairing_id };
  if ((type === 'published' || type === 'revoked') && credential_kind === 'route' && isName(credential_id))
    return { type, credential_kind, credential_id };
  if (type === 'open' && isId(stream_id) && isId(host_connection_id)) return { type, stream_id, host_connection_id };
  if (type === 'error' && isName(code)) return { type, code };
  return null;
}

/** The broker's answer to a client's registration, or null when it is anything else (contract 08 §7.3). */
export function parseClientAnswer(text: string): ClientAnswer | null {
  const message = parseControl(text);
  if (message?.protocol_version !== PROTOCOL_VERSION) return null;
  const { type, stream_id, code } = message;
  if (type === 'matched' && isId(stream_id) && hasExactly(message, ['stream_id'])) return { type, stream_id };
  if (type === 'error' && isName(code) && hasExactly(message, ['code'])) return { type, code };
  return null;
}

const parseControl = (text: string): JsonObject | null => (utf8Length(text) > MAX_CONTROL ? null : parseObject(text));

function hasExactly(message: JsonObject, keys: readonly string[]): boolean {
  const expected = ['type', 'protocol_version', ...keys];
  return Object.keys(message).length === expected.length && expected.every((key) => Object.hasOwn(message, key));
}

/** An identifier that the broker stores but does not interpret: 1 to 128 characters. */
const isName = (value: unknown): value is string =>
  typeof value === 'string' && value.length > 0 && value.length <= 128;

const isWithin = (value: unknown, max: number): boolean =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= max;

const isFlowOffer = (value: unknown): value is FlowOffer =>
  isObject(value) && value.version === 1 && isWithin(value.window, 0xffffffff);

const RFC_3339 =
  /^(\d{4}-\d\d-(\d\d))[Tt]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?)([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/** Epoch seconds of a number, or of RFC 3339 text with a zone and at most 64 characters; null for anything else. */
function epochSeconds(value: unknown): number | null {
  if (typeof value === 'number') return Number.isFinite(value) ? value : null;
  const parts = typeof value === 'string' && value.length <= 64 ? RFC_3339.exec(value) : null;
  if (!parts) return null;
  const [, date, day, time, zone] = parts;
  // `Date` turns the 30th of February into the 1st of March.
  if (new Date(`${date}T00:00:00Z`).getUTCDate() !== Number(day)) return null;
  const at = Date.parse(`${date}T${time}${zone?.toUpperCase()}`);
  return Number.isNaN(at) ? null : at / 1000;
}
