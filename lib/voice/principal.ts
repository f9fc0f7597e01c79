import type { Storage } from 'unstorage';
import type { VoiceCallerRecord } from '../../storage/schema.ts';
import { bearerOf, offeredBearer } from '../access/bearer.ts';
import type { LocalOperator } from '../access/local-operator.ts';
import type { CallerFacts } from '../access/loopback.ts';
import { addressOf, isLoopbackAddress, peerKey } from '../access/peer.ts';
import type { BearerRequest, SessionBearers } from '../access/session-bearers.ts';
import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import { plainAddress } from '../kit/addresses.ts';
import { timingSafeEqual } from '../kit/bytes.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { sha256 } from '../kit/sha256.ts';
import { type Log, REFUSED } from '../log.ts';
import type { Security } from '../operator/security.ts';
import { isDeviceId } from '../sessions/device.ts';
import { earlier, isGranted } from '../sessions/grants.ts';
import { familyOf } from '../sessions/refresh.ts';
import type { EndReason, Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { invalidBearer, openApiBearers } from './api-bearer.ts';

export type VoiceGrant = 'voice:config' | 'voice:stt' | 'voice:tts' | 'voice:realtime';

/**
 * A caller of voice (contract 05 §2). Two requests have the same principal if kind and key are equal. The key of a session
 * is its device id, else its family, so that a refreshed token keeps the principal; the key of an API bearer is the SHA-256
 * of the token.
 */
export type VoicePrincipal = { kind: 'session'; key: string; session: Session } | { kind: 'api'; key: string };

/** True if two callers are the same. */
export const isSamePrincipal = (a: VoicePrincipal, b: VoicePrincipal): boolean => a.kind === b.kind && a.key === b.key;

export interface VoiceCallersDeps {
  config: Pick<Config, 'webapiUrl' | 'trustProxyHeaders' | 'trustVpnPeers'>;
  upstream: Upstream;
  sessions: Sessions;
  sessionBearers: SessionBearers;
  security: Security;
  localOperator: Pick<LocalOperator, 'refusal'>;
  /** The host's own API key, empty without one. */
  apiKey(): Promise<string>;
  store: Storage<VoiceCallerRecord>;
  clock: Clock;
  log: Log;
}

/** The parts of a request from which its caller is judged. */
export type VoiceCaller = CallerFacts & BearerRequest;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const SESSION_ENDED: Record<EndReason, string> = {
  revoked: 'session revoked',
  replaced: 'session replaced',
  expired: 'session expired',
};

/** A token in the form for the log. */
const tokenId = (token: string): string => `token_id=${sha256(token).slice(0, 16)}`;

/** A watch that lasts as long as a session and a grant. */
interface Watch {
  session: Session;
  grant: VoiceGrant;
  cancelDeadline: Cancel;
  ended(reason: string): void;
}

export const lacksGrant = (grant: VoiceGrant): RelayError =>
  new RelayError('forbidden', `session lacks active ${grant} grant`);

/** Bearer checks of voice (contract 05 §2). */
export async function createVoiceCallers(deps: VoiceCallersDeps) {
  const { config, upstream, sessions, sessionBearers, security, localOperator, store, clock, log } = deps;
  const bearers = await openApiBearers({ base: config.webapiUrl, upstream, store, clock, log });
  const watches = new Map<Session, Set<Watch>>();

  function ofSession(session: Session, grant: VoiceGrant): VoicePrincipal {
    if (!isGranted(session.grants, grant, seconds(clock))) {
      log.info(`refused voice to session ${session.prefix}: no active ${grant} grant`);
      throw lacksGrant(grant);
    }
    return { kind: 'session', key: isDeviceId(session.device.id) ? session.device.id : session.family, session };
  }

  /** True if the relay issued the token, alive or dead: such a token must not be sent to anybody else. */
  async function isOwnToken(token: string): Promise<boolean> {
    const family = familyOf(token);
    if (family !== undefined && sessions.byFamily(family)) return true;
    // An API key may have the form of a session token.
    return UUID.test(token) && !timingSafeEqual(token, await deps.apiKey());
  }

  async function ofApiBearer(token: string, caller: CallerFacts): Promise<VoicePrincipal> {
    if (await isOwnToken(token)) throw invalidBearer();
    const isLocal = (await localOperator.refusal(caller)) === undefined;
    if (!isLocal && !security.allowInsecureApiBearer && !isSecure(caller, config)) {
      throw new RelayError('forbidden', 'an API key is accepted over HTTPS only; pair this device, or use TLS');
    }
    const { peer, headers } = caller;
    const key = addressOf(peerKey(peer, headers, config.trustProxyHeaders));
    if (!(await bearers.isValid(token, key))) throw invalidBearer();
    if (!isLocal && (await bearers.isOpen())) {
      throw new RelayError('forbidden', 'the API server accepts any key, so a key admits only callers on its host');
    }
    return { kind: 'api', key: sha256(token) };
  }

  /** Sets the timer of the watch to the earlier end of grant and session. Ends the watch if the grant is over. */
  function arm(watch: Watch): void {
    watch.cancelDeadline();
    const { session, grant } = watch;
    const now = seconds(clock);
    if (!isGranted(session.grants, grant, now)) {
      end(watch, `${grant} grant ended`);
      return;
    }
    const next = earlier(session.grants[grant] ?? null, session.expiresAt);
    if (next === null) return;
    watch.cancelDeadline = clock.after(Math.max(0, Math.ceil((next - now) * 1000)), () => {
      // An expired session that is found announces its end.
      if (sessions.isAlive(session)) arm(watch);
    });
  }

  function watchesOf(session: Session): Set<Watch> {
    const known = watches.get(session);
    if (known) return known;
    const added = new Set<Watch>();
    watches.set(session, added);
    return added;
  }

  function forget(watch: Watch): void {
    watch.cancelDeadline();
    const others = watches.get(watch.session);
    others?.delete(watch);
    if (others?.size === 0) watches.delete(watch.session);
  }

  function end(watch: Watch, reason: string): void {
    forget(watch);
    watch.ended(reason);
  }

  /** A refresh replaces the session by one of the same family, whose watches continue. */
  function follow(watch: Watch): void {
    if (!watches.get(watch.session)?.has(watch)) return;
    const session = sessions.byFamily(watch.session.family);
    if (!session) {
      end(watch, SESSION_ENDED[watch.session.ended ?? 'revoked']);
      return;
    }
    forget(watch);
    watch.session = session;
    watchesOf(session).add(watch);
    arm(watch);
  }

  sessions.onReduce((session) => {
    for (const watch of [...(watches.get(session) ?? [])]) arm(watch);
  });
  sessions.onEnd((session, reason) => {
    for (const watch of [...(watches.get(session) ?? [])]) {
      // The end of a replaced session is announced before its successor exists.
      if (reason === 'replaced') queueMicrotask(() => follow(watch));
      else end(watch, SESSION_ENDED[reason]);
    }
  });

  return {
    /**
     * The principal of a request: a live session with the grant, or a bearer that the agent's API server accepts, over a safe
     * transport. A page sends its token, and the proof of a bound one, as subprotocols of the upgrade. Marks a live session as
     * seen. Tokens issued by the relay are never sent to that server.
     * @throws RelayError `unauthorized`, `forbidden` or `rate-limited`, without the token.
     */
    async authenticate(caller: VoiceCaller, grant: VoiceGrant): Promise<VoicePrincipal> {
      const authorization = caller.headers.get('authorization');
      const isOffered = authorization === null && caller.isHandshake === true;
      const token = isOffered ? offeredBearer(caller.headers) : bearerOf(authorization);
      if (token === null) throw new RelayError('unauthorized', 'voice needs the header Authorization: Bearer <token>');
      const session = await sessionBearers.sessionOf(token, caller);
      if (session) return ofSession(session, grant);
      // A page of any origin can offer subprotocols, so they are never tried as API keys.
      if (isOffered) throw invalidBearer();
      try {
        return await ofApiBearer(token, caller);
      } catch (error) {
        if (error instanceof RelayError)
          log.named(REFUSED).info(`refused a bearer for voice, ${tokenId(token)}: ${error.message}`);
        throw error;
      }
    },

    /**
     * Calls back once, with a few words for a close frame, when a principal may no longer use its open sockets: its session
     * was revoked, replaced or has expired, or the grant has ended. A refresh of the session, after which the device keeps its
     * grants, ends nothing. An API bearer never ends. Returns a function that ends the watch.
     */
    onPrincipalEnded(principal: VoicePrincipal, grant: VoiceGrant, ended: (reason: string) => void): () => void {
      if (principal.kind === 'api') return () => {};
      const watch: Watch = { session: principal.session, grant, cancelDeadline: () => {}, ended };
      watchesOf(watch.session).add(watch);
      // The session may have ended since the principal was authenticated, but callbacks must not run before this returns.
      queueMicrotask(() => follow(watch));
      return () => forget(watch);
    },
  };
}

/**
 * True if an API bearer is transported safely: by TLS, by TLS up to a trusted proxy on loopback with https on every hop, or
 * by a VPN that the operator trusts.
 */
function isSecure(
  { peer, headers }: CallerFacts,
  { trustProxyHeaders, trustVpnPeers }: VoiceCallersDeps['config'],
): boolean {
  if (peer.tls) return true;
  if (peer.via !== 'direct') return false;
  if (trustVpnPeers && isVpnAddress(peer.address)) return true;
  if (!trustProxyHeaders || !isLoopbackAddress(peer.address)) return false;
  const protocols = headers.get('x-forwarded-proto')?.split(',') ?? [];
  return protocols.length > 0 && protocols.every((protocol) => protocol.trim().toLowerCase() === 'https');
}

/** 100.64.0.0/10, where VPNs such as Tailscale have their addresses. */
function isVpnAddress(address: string | null): boolean {
  const [first, second] = plainAddress(address ?? '').split('.');
  return first === '100' && (Number(second) & 0b1100_0000) === 64;
}
