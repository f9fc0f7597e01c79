import * as v from 'valibot';
import { describeError, RelayError } from '../errors.ts';
import { seconds } from '../kit/clock.ts';
import { readAs } from '../kit/entries.ts';
import { isObject, type JsonObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Candidate } from '../pairing/candidates.ts';
import type { HandedCode, PairingCodes } from '../pairing/codes.ts';
import { type CodePolicy, policyBody, readPolicy } from '../pairing/policy.ts';
import { PHONE_GRANT } from '../phone/phone.ts';
import { applyPolicy, GRANTS, isPast } from '../sessions/grants.ts';
import { narrowedPolicy } from '../sessions/policy-change.ts';
import { refreshExpiry } from '../sessions/refresh.ts';
import { fromStored, type Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { chainBody, chainTokens } from './chains.ts';
import type { Mailboxes } from './mailboxes.ts';
import type { Outbox } from './outbox.ts';
import { type RecordDeps, time } from './records.ts';
import type { Requests } from './requests.ts';
import { bodyOf, readPaired } from './session-body.ts';
import type { Side } from './side.ts';
import { openTombstones } from './tombstones.ts';

/** Seconds for which home remembers a code of the edge, where the device may have paired while the link was down. */
const CODE_KNOWN = 30 * 86_400;
const MAX_CODES = 256;
const CODE = 'edge-code:';
const ADOPTED = 'adopted:';

const hash = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));
const Handed = v.object({ sha256: hash, secret_sha256: v.optional(hash), masked: v.pipe(v.string(), v.maxLength(16)) });

const Policy = v.pipe(v.record(v.string(), v.unknown()), v.check(isPolicy));
const Code = v.object({ policy: Policy, until: time });

interface KnownCode {
  policy: CodePolicy;
  /** Expiry at home, epoch seconds. */
  until: number;
}

export interface EdgeCodesDeps extends RecordDeps, Pick<Side, 'isOn' | 'isLinked'> {
  requests: Requests;
}

export type EdgeCodes = ReturnType<typeof openEdgeCodes>;

/** At home, the codes that are valid at the edge only (contract 12 §2), stored with the policy that home applies. */
export function openEdgeCodes({ store, records, clock, log, requests, isOn, isLinked }: EdgeCodesDeps) {
  const codes = new Map<string, KnownCode>();
  for (const [code, { policy, until }] of records.below(CODE, Code))
    codes.set(code, { policy: readPolicy(policy), until });
  const forget = (code: string): void => {
    if (!codes.delete(code)) return;
    void store.removeItem(CODE + code).catch(() => log.warn('a pairing code of the edge could not be removed'));
  };

  return {
    /**
     * Hands a code to the edge. Resolves with its expiry there, epoch seconds; home has stored it before.
     * @throws RelayError `conflict` without a mirror or if the edge refuses, `unavailable` if it cannot be reached.
     */
    async give({ hash, secretHash, masked, policy }: HandedCode): Promise<number> {
      if (!isOn()) {
        throw new RelayError('conflict', 'this relay has no mirror at the edge where the code could be redeemed');
      }
      if (!isLinked()) {
        throw new RelayError('unavailable', 'the edge cannot be reached now: make the code there, or try again later');
      }
      for (const [code, { until }] of codes) if (until <= seconds(clock)) forget(code);
      const [oldest] = codes.keys();
      if (codes.size >= MAX_CODES && oldest !== undefined) forget(oldest);
      const known = { policy, until: Math.floor(seconds(clock)) + CODE_KNOWN };
      codes.set(hash, known);
      await store.setItem(CODE + hash, { policy: policyBody(policy), until: known.until }).catch((cause) => {
        forget(hash);
        throw new RelayError('unavailable', 'the pairing code could not be stored: try again later', { cause });
      });
      const body = { sha256: hash, secret_sha256: secretHash, masked, policy: { ...policyBody(policy) } };
      const { expires_at: end } = await requests.ask('code', body).catch((error) => {
        // Without an answer, the edge may have accepted it.
        if (!(error instanceof RelayError) || error.kind === 'conflict') forget(hash);
        throw error;
      });
      if (typeof end !== 'number')
        throw new RelayError('conflict', 'the edge is older than this relay: update it first');
      return end;
    },

    /** True if a code was handed to the edge. */
    isAtEdge: (code: string): boolean => (codes.get(code)?.until ?? 0) > seconds(clock),

    /** Uses a code. Returns its policy, once. */
    take(code: string): CodePolicy | undefined {
      const policy = codes.get(code)?.policy;
      forget(code);
      return policy;
    },

    clear(): void {
      for (const code of [...codes.keys()]) forget(code);
    },
  };
}

/**
 * At the edge, accepts a code that home hands over. Resolves with the answer.
 * @throws RelayError if it is malformed, or cannot be accepted.
 */
export async function acceptCode(codes: PairingCodes, body: JsonObject): Promise<JsonObject> {
  const handed = readAs(Handed)(body);
  if (!handed || !isObject(body.policy)) throw new RelayError('invalid', 'home handed over what is no code');
  const { sha256, secret_sha256: secretHash, masked } = handed;
  const policy = readPolicy(body.policy);
  return { expires_at: await codes.accept({ hash: sha256, secretHash, masked, policy }) };
}

/** The present routes for a pairing code, and their URLs with that of the relay itself. */
export interface HomeRoutes {
  endpoints: Candidate[];
  urls: string[];
}

export interface AdoptionDeps extends RecordDeps {
  sessions: Sessions;
  outbox: Outbox;
  mailboxes: Mailboxes;
  codes: EdgeCodes;
  /** The secret of this mirror; undefined without one. */
  secret(): string | undefined;
  routes(): Promise<HomeRoutes>;
}

/**
 * At home, accepts the devices that have paired at the edge, and sends them credentials for home (contract 12 §3). These pass
 * through the edge, and are exchanged when the device connects: after that, the credentials seen by the edge are worthless,
 * and presenting them is a sign of theft.
 */
export function openAdoption(deps: AdoptionDeps) {
  const { sessions, outbox, mailboxes, codes, clock, log, secret } = deps;
  const failed = () => log.warn('what the mirror knows of a device of the edge could not be stored');
  /** The families that it has accepted, which must not return once they have ended. */
  const known = openTombstones({ ...deps, base: ADOPTED, failed });
  const tokensOf = (family: string, chain: number) => chainTokens(secret() ?? '', 'own', family, chain);
  const refuse = (family: string): void => void outbox.offer(`session:${family}`, 'end', { family, ended: true });

  /** The session of home for a device that the edge has admitted; undefined if it has ended, or is malformed. */
  function sessionOf(body: JsonObject, policy: CodePolicy): Session | undefined {
    const paired = readPaired(body);
    if (!paired) return undefined;
    const now = seconds(clock);
    const chain = Math.floor(now);
    const given = fromStored({
      ...body,
      ...chainBody(tokensOf(paired.family, chain), chain),
      last_seen: body.first_seen,
      routes: { own: [], others: true, key: '' },
    });
    if (!given) return undefined;
    const at = Math.min(given.createdAt, now);
    const { transportHint: _, ...durations } = policy;
    const session: Session = { ...given, ...applyPolicy(policy, at), policy: durations, grantedAt: at };
    // The edge may have reduced it, but never extended.
    const { expiresAt, grants } = narrowedPolicy(session, given);
    Object.assign(session, { expiresAt, grants });
    return isPast(expiresAt, now) ? undefined : session;
  }

  return {
    /** Accepts a device that the edge has admitted, in the transaction of this turn. */
    adopt(body: JsonObject): Promise<unknown> | undefined {
      const paired = readPaired(body);
      if (!paired) return void log.warn('the edge gave a device that cannot be read');
      const { family, chain, code } = paired;
      if (sessions.byFamily(family)) return undefined;
      // It has ended here meanwhile.
      if (known.has(family)) return void refuse(family);
      const own = codes.take(code);
      if (!own) log.warn('a device has paired at the edge by a code that is none of home: it gets messages alone');
      const policy = own ?? vouchedByEdge(body.policy);
      const session = sessionOf(body, policy);
      if (!session) return void refuse(family);
      known.sweep();
      known.bury(family, Math.ceil(refreshExpiry(seconds(clock))));
      mailboxes.beganThere(family, chain);
      return sessions.takeIn(session).then(
        (isStored) => {
          if (!isStored) throw new RelayError('unavailable', 'a session could not be stored');
        },
        (error) => {
          log.warn(`a device that has paired at the edge is refused: ${describeError(error)}`);
          refuse(family);
        },
      );
    },

    /** Answers the edge with the credentials for home of a device that has yet to connect, and the present routes. */
    async credentials(family: string): Promise<JsonObject> {
      const session = sessions.byFamily(family);
      if (!session || secret() === undefined) return {};
      if (!sessions.isInterim(session)) return { taken: true };
      const tokens = tokensOf(family, session.chain ?? 0);
      // They belonged to a mirror that has ended meanwhile.
      if (sha256(tokens.session_token) !== session.tokenHash) return {};
      const { endpoints, urls } = await deps.routes();
      return { endpoints, home: { urls, ...tokens } };
    },

    /** Forgets the codes that are valid at the edge, and the families that it must not give again. */
    leave(): void {
      codes.clear();
      known.leave();
    },
  };
}

function isPolicy(body: JsonObject): boolean {
  try {
    readPolicy(body);
    return true;
  } catch {
    return false;
  }
}

/** Home did not make the code, so only the edge vouches for it, and a compromised edge could do so at any time. */
function vouchedByEdge(policy: unknown): CodePolicy {
  const ttlSeconds = v.is(Policy, policy) ? readPolicy(policy).ttlSeconds : undefined;
  return { ttlSeconds, without: GRANTS.filter((name) => name !== PHONE_GRANT) };
}

export interface PairedHereDeps extends Pick<Side, 'outbox' | 'log' | 'isLinked'> {
  sessions: Sessions;
  requests: Requests;
  isConnected(session: Session): boolean;
  /** Sends `pairing/routes.updated` to a device. */
  send(session: Session, payload: JsonObject): void;
}

/** At the edge, the devices that have paired here and become devices of home (contract 12 §3). */
export function createPairedHere(deps: PairedHereDeps) {
  const { sessions, outbox, requests, log, isLinked, isConnected, send } = deps;
  /** Families about which a request to home is pending. */
  const asked = new Set<string>();

  async function ask({ family }: Session): Promise<void> {
    if (asked.has(family) || !isLinked()) return;
    asked.add(family);
    try {
      const { taken: isKnown, home, endpoints } = await requests.ask('home', { family });
      const session = sessions.byFamily(family);
      if (!session) return;
      if (isKnown === true) sessions.wasAtHome(session);
      else if (isObject(home) && isConnected(session)) send(session, { endpoints, home });
    } catch (error) {
      log.debug(`home was not asked for the credentials of a device: ${describeError(error)}`);
    } finally {
      asked.delete(family);
    }
  }

  const isWaiting = ({ pairedHere }: Session): boolean => pairedHere !== undefined && !pairedHere.adopted;

  return {
    /** True while home has yet to accept the device, for which the edge vouches until then. */
    isWaiting,

    /** A session was written. It is offered to home until home has accepted it. */
    wrote(session: Session): void {
      const key = `pair:${session.family}`;
      if (!session.pairedHere || session.pairedHere.adopted || outbox.isWaiting(key)) return;
      const {
        token_sha256: _,
        token_prefix: __,
        ...body
      } = bodyOf(session, {
        chain: session.chain ?? 0,
        code: session.pairedHere.code,
      });
      outbox.offer(key, 'pair', body);
    },

    /** A session has ended here. */
    ended: (family: string): void => outbox.forget(`pair:${family}`),

    /** The device is connected, or home has accepted it: sends it its credentials for home, until it has connected there. */
    offer(session: Session): void {
      if (session.pairedHere?.adopted) void ask(session);
    },

    linked(): void {
      for (const session of sessions.list()) {
        if (isWaiting(session)) this.wrote(session);
        else if (isConnected(session)) this.offer(session);
      }
    },
  };
}
