import type { RoutesRecord } from '../../storage/schema.ts';
import type { Limiter } from '../access/limiter.ts';
import { RelayError } from '../errors.ts';
import { isObject, parseObject } from '../kit/json.ts';
import { visibleName } from '../kit/text.ts';
import type { Log } from '../log.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import type { CodePolicy } from '../pairing/policy.ts';
import { UNNAMED } from '../sessions/device.ts';
import type { Device, Session } from '../sessions/session.ts';
import type { Issued, Sessions } from '../sessions/sessions.ts';
import { type Message, type Payload, parseEnvelope } from './envelope.ts';
import type { Caller } from './transport.ts';

/** Credentials and self-description in a client's first frame (contract 01 §3.3). */
export interface AuthRequest {
  pairingCode?: string;
  /** The secret of a QR code, besides its code. */
  pairingSecret?: string;
  sessionToken?: string;
  refreshToken?: string;
  /** A proof of the client's key (handlers/web/README.md). */
  proof?: string;
  /** The client's key for its mailbox (contract 12 §4). */
  boxKey?: string;
  device: Device;
  /** True if the client reads typed chat events. A property of the socket, never of the session. */
  typedStream: boolean;
}

export type FirstFrame = { kind: 'auth'; request: AuthRequest } | { kind: 'refused'; reason: string };

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

/** Parses the first text frame of a socket. Pure: `authenticate` checks the credentials. */
export function readFirstFrame(text: string): FirstFrame {
  const envelope: Message | null = parseEnvelope(text);
  if (!envelope) {
    return parseObject(text) ? refused('First message must be system/auth') : refused('Invalid message format');
  }
  if (envelope.channel !== 'system' || envelope.type !== 'auth') return refused('First message must be system/auth');
  return { kind: 'auth', request: readAuthRequest(envelope.payload) };
}

const refused = (reason: string): FirstFrame => ({ kind: 'refused', reason });

function readAuthRequest(payload: Payload): AuthRequest {
  return {
    pairingCode: credential(payload.pairing_code)?.toUpperCase(),
    pairingSecret: credential(payload.pairing_secret),
    sessionToken: credential(payload.session_token),
    refreshToken: credential(payload.refresh_token),
    proof: credential(payload.proof),
    boxKey: credential(payload.box_key),
    device: {
      name: visibleName(payload.device_name) || visibleName(payload.device_hostname) || UNNAMED,
      id: visibleName(payload.device_id) || 'unknown',
      model: visibleName(payload.device_model),
      platform: visibleName(payload.device_platform),
      surface: oneOf(payload.client_surface, ['android', 'desktop', 'quest', 'web']),
      formFactor: oneOf(payload.device_form_factor, ['phone', 'desktop', 'xr']),
    },
    typedStream: supportsTypedStream(payload.supports),
  };
}

/**
 * Depends on which credentials were sent, not on which check failed, so that it is not an oracle (contract 01 §3.6).
 * `restrictedFor` is how long codes without their secret are restricted, in seconds, 0 when they are not.
 */
export function refusalReason(request: AuthRequest, restrictedFor = 0, isEdgeOfHome = false): string {
  if (request.pairingCode !== undefined && request.pairingSecret === undefined && restrictedFor > 0) {
    return `pairing is restricted for ${restrictedFor} s`;
  }
  if (request.pairingCode !== undefined) {
    return `Invalid pairing code or session token${isEdgeOfHome ? '; a code of home is good at home' : ''}`;
  }
  if (request.sessionToken !== undefined || request.refreshToken !== undefined) return 'Invalid session token';
  return 'Missing pairing code or session token';
}

/** The credential that the proof in the first frame covers: the first of these that is present. Empty if none is. */
export const provedCredential = ({ sessionToken, refreshToken, pairingCode }: AuthRequest): string =>
  sessionToken ?? refreshToken ?? pairingCode ?? '';

/**
 * Reason for a client that does not prove the key of its session. Clients keep their pairing if a reason contains "auth" and
 * "timeout" (contract 01 §3.6), which matters because a tab from before an update shares the pairing of one that has bound
 * it.
 */
const NEEDS_PROOF = 'Authentication needs a proof of the key of this session (timeout)';

export interface AuthDeps {
  /** The routes of a device that knows only its own URL. Absent at the edge, whose address stays. */
  routesBy?(url: string): RoutesRecord;
  /** At home, the origin of the edge's page, which counts as home's own (contract 12 §3). */
  edgePage?(): string | undefined;
  /** True at the edge of a home, whose own codes are invalid here. */
  isEdgeOfHome?(): boolean;
  sessions: Sessions;
  codes: PairingCodes;
  limiter: Limiter;
  log: Log;
}

export interface Admitted {
  session: Session;
  token: string;
  refreshToken?: string;
  /** For `auth.ok` over Secure Link (contract 08 §6.4). */
  routeCredential?: object;
}

/** The outcome of the proof in a first frame: the thumbprint of its key, or false for an invalid proof. */
export type Proved = string | false | undefined;

/**
 * Authenticates a client: by session token, else refresh token, else pairing code (contract 01 §3.4). Returns undefined and
 * counts the failure if none is valid, the proof is invalid, or the session ended while it was being saved. An unbound
 * session is bound to `proved`. Synchronous for a session token that changes nothing, the usual case.
 * @throws RelayError `unauthorized` with the reason if the session is bound to a key and there is no proof.
 * @throws RelayError `unavailable` if a pairing or refresh cannot be stored, there is no room for another session, or a
 * clock that may be wrong has ended this one; none of these counts as a failure.
 */
export function authenticate(
  deps: AuthDeps,
  request: AuthRequest,
  peer: Pick<Caller, 'key' | 'transportHint' | 'url' | 'page'>,
  proved?: Proved,
): Admitted | undefined | Promise<Admitted | undefined> {
  const { sessions, codes, limiter } = deps;
  const { sessionToken, refreshToken, pairingCode, pairingSecret } = request;
  const { page } = peer;
  const isPage = request.device.surface === 'web' && page && (page.isOwn || page.origin === deps.edgePage?.());
  const device = isPage ? { ...request.device, origin: page.origin } : request.device;
  const conclude = (by: 'token' | 'code', admitted: Admitted | undefined) =>
    updateLimiter(deps, request, peer.key, by, admitted);

  if (proved === false || isForeign(deps, request, page)) return conclude('token', undefined);
  const session = sessionToken === undefined ? undefined : sessions.authenticate(sessionToken, proved);
  // Credentials that came through the edge are exchanged for others that the edge has not seen (contract 12 §3).
  if (session && !(refreshToken !== undefined && sessions.isInterim(session))) {
    const admitted = { session, token: sessionToken as string };
    const { saved } = sessions.resume(session, device, refreshToken, proved);
    if (!saved) return conclude('token', admitted);
    return saved.then((issued) => conclude('token', { ...admitted, refreshToken: issued }));
  }
  // Not a failed attempt, since a caller with the token has not guessed it.
  if (proved === undefined && sessions.keyOf({ token: sessionToken, refreshToken }) !== undefined) {
    throw new RelayError('unauthorized', NEEDS_PROOF);
  }
  if (pairingCode === undefined) sessions.refuseAside({ token: sessionToken, refreshToken });
  return refreshOrPair();

  async function refreshOrPair(): Promise<Admitted | undefined> {
    const refreshed =
      refreshToken === undefined ? undefined : await sessions.refresh(refreshToken, device, proved || undefined);
    return refreshed ? conclude('token', refreshed) : conclude('code', await pair());
  }

  async function pair(): Promise<Admitted | undefined> {
    if (pairingCode === undefined) return undefined;
    let issued: Issued | undefined;
    const allowed = limiter.codesFor(peer.key);
    const came = peer.url === undefined ? undefined : deps.routesBy?.(peer.url);
    const use = async (policy: CodePolicy, named?: RoutesRecord, home?: string) => {
      const transportHint = policy.transportHint ?? peer.transportHint;
      // A page keeps the address that it was loaded from.
      const routes = device.surface === 'web' ? came : (named ?? came);
      const keyThumbprint = proved || undefined;
      issued = await sessions.create({ device, policy, transportHint, keyThumbprint, routes, home });
    };
    await codes.consume(pairingCode, { allowed, secret: pairingSecret, use });
    return issued;
  }
}

/**
 * True if a page of another origin presents the credentials of a session that was paired in a different page (contract 12
 * §3): at the edge, a session of home; at home, if either page is the edge's.
 */
function isForeign({ sessions, edgePage }: AuthDeps, request: AuthRequest, page: Caller['page']): boolean {
  if (!page || page.isOwn) return false;
  const { sessionToken: token, refreshToken } = request;
  const owner = sessions.ownerOf({ token, refreshToken });
  const origin = owner?.device.origin;
  if (owner?.mirrored) return origin !== page.origin;
  return origin !== undefined && origin !== page.origin && [origin, page.origin].includes(edgePage?.() ?? '');
}

/** Updates the limiter: a success clears failures of the peer, a failure counts in each bucket that it tried. */
function updateLimiter(
  { sessions, limiter, log }: AuthDeps,
  request: AuthRequest,
  key: string,
  by: 'token' | 'code',
  admitted: Admitted | undefined,
): Admitted | undefined {
  if (admitted && sessions.isAlive(admitted.session)) {
    limiter.succeed(key, by);
    return admitted;
  }
  const count = (bucket: 'pairing' | 'session', isBlocked: boolean) => {
    if (isBlocked) log.warn(`${key} is blocked after too many failed ${bucket} attempts`);
  };
  if (request.pairingCode !== undefined) {
    count('pairing', limiter.fail(key, 'pairing', { isGuess: request.pairingSecret === undefined }));
  }
  if (request.pairingCode === undefined || request.sessionToken !== undefined || request.refreshToken !== undefined) {
    count('session', limiter.fail(key, 'session'));
  }
  return undefined;
}
