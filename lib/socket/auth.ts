import type { Limiter } from '../access/limiter.ts';
import { isObject, parseObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import type { Device, Session, TransportHint } from '../sessions/session.ts';
import { type Sessions, UNNAMED } from '../sessions/sessions.ts';
import { type Message, type Payload, parseEnvelope } from './envelope.ts';

/** What a client puts forward in its first frame (contract 01 §3.3). */
export interface Offer {
  pairingCode?: string;
  sessionToken?: string;
  refreshToken?: string;
  device: Device;
  /** Chat events may be sent in their typed form. Belongs to the socket, never to the session. */
  typedStream: boolean;
}

export type FirstFrame = { kind: 'offer'; offer: Offer } | { kind: 'refused'; reason: string };

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are dropped from what devices call themselves
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/g;

const describe = (value: unknown): string =>
  typeof value === 'string' ? value.replace(CONTROL, '').trim().slice(0, 128).toWellFormed() : '';

const credential = (value: unknown): string | undefined => {
  const text = typeof value === 'string' ? value.trim() : '';
  return text === '' ? undefined : text;
};

const oneOf = <T extends string>(value: unknown, known: readonly T[]): T | 'unknown' =>
  known.find((word) => word === value) ?? 'unknown';

const supportsTypedStream = (supports: unknown): boolean => {
  if (!isObject(supports) || supports.typed_stream_events !== true) return false;
  const version = supports.event_schema_version ?? supports.typed_stream_event_schema_version ?? 1;
  return version === 1 || version === '1';
};

/** Reads the first text frame of a socket. Pure: what the credentials are worth is decided elsewhere. */
export function readFirstFrame(text: string): FirstFrame {
  const envelope: Message | null = parseEnvelope(text);
  if (!envelope) {
    return parseObject(text) ? refused('First message must be system/auth') : refused('Invalid message format');
  }
  if (envelope.channel !== 'system' || envelope.type !== 'auth') return refused('First message must be system/auth');
  return { kind: 'offer', offer: readOffer(envelope.payload) };
}

const refused = (reason: string): FirstFrame => ({ kind: 'refused', reason });

function readOffer(payload: Payload): Offer {
  return {
    pairingCode: credential(payload.pairing_code)?.toUpperCase(),
    sessionToken: credential(payload.session_token),
    refreshToken: credential(payload.refresh_token),
    device: {
      name: describe(payload.device_name) || describe(payload.device_hostname) || UNNAMED,
      id: describe(payload.device_id) || 'unknown',
      model: describe(payload.device_model),
      platform: describe(payload.device_platform),
      surface: oneOf(payload.client_surface, ['android', 'desktop', 'quest']),
      formFactor: oneOf(payload.device_form_factor, ['phone', 'desktop', 'xr']),
    },
    typedStream: supportsTypedStream(payload.supports),
  };
}

/** The sentence follows from what was offered, not from which check failed: it is no oracle (contract 01 §3.6). */
export function refusalReason(offer: Offer): string {
  if (offer.pairingCode !== undefined) return 'Invalid pairing code or session token';
  if (offer.sessionToken !== undefined || offer.refreshToken !== undefined) return 'Invalid session token';
  return 'Missing pairing code or session token';
}

export interface AuthParts {
  sessions: Sessions;
  codes: PairingCodes;
  limiter: Limiter;
  log: Log;
}

export type Admitted = { session: Session; token: string; refreshToken?: string };

/**
 * Decides one offer: a good token, else a good refresh token, else a pending code (contract 01 §3.4). Undefined when
 * none of them is good; the failure is then counted. A session that was ended while its change was being saved
 * counts as refused. Most devices come back with nothing to save: then there is nothing to wait for either.
 */
export function authenticate(
  parts: AuthParts,
  offer: Offer,
  peer: { key: string; transportHint: TransportHint },
): Admitted | undefined | Promise<Admitted | undefined> {
  const { sessions, codes } = parts;
  const { sessionToken, refreshToken, pairingCode, device } = offer;
  const decided = (admitted: Admitted | undefined) => decide(parts, offer, peer.key, admitted);

  const session = sessionToken === undefined ? undefined : sessions.authenticate(sessionToken);
  if (session) {
    const { refreshToken: issued, saved } = sessions.resume(session, device, refreshToken);
    const admitted = { session, token: sessionToken as string, refreshToken: issued };
    return saved ? saved.then(() => decided(admitted)) : decided(admitted);
  }
  return admitAnew().then(decided);

  async function admitAnew(): Promise<Admitted | undefined> {
    const refreshed = refreshToken === undefined ? undefined : await sessions.refresh(refreshToken, device);
    if (refreshed) return refreshed;
    const policy = pairingCode === undefined ? undefined : codes.consume(pairingCode);
    if (!policy) return undefined;
    return sessions.create({ device, policy, transportHint: policy.transportHint ?? peer.transportHint });
  }
}

/** The last look before the answer: counts a failure, forgives a success. */
function decide(
  { sessions, limiter, log }: AuthParts,
  offer: Offer,
  key: string,
  admitted: Admitted | undefined,
): Admitted | undefined {
  if (admitted && sessions.isAlive(admitted.session)) {
    limiter.succeed(key);
    return admitted;
  }
  const count = (bucket: 'pairing' | 'session') => {
    if (limiter.fail(key, bucket)) log.warn(`${key} is blocked after too many failed ${bucket} attempts`);
  };
  if (offer.pairingCode !== undefined) count('pairing');
  if (offer.pairingCode === undefined || offer.sessionToken !== undefined || offer.refreshToken !== undefined) {
    count('session');
  }
  return undefined;
}
