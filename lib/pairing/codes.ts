import type { Storage } from 'unstorage';
import type { PairingCodeRecord, RoutesRecord } from '../../storage/schema.ts';
import { describeError, notStored, RelayError } from '../errors.ts';
import { base64url, randomBytes, randomString, sha256, timingSafeEqual } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { loadAll } from '../kit/entries.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { readRoutes } from '../sessions/session.ts';
import { maskCode } from './code.ts';
import { type CodePolicy, describePolicy, policyBody, readPolicy } from './policy.ts';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
const LIFETIME = 600;
/** Bytes of the secret beside a code. */
const SECRET_LENGTH = 16;
const MAX_PENDING = 256;
/** Codes without a policy, and requests to pair, that wait at once: of each. */
const MAX_ANONYMOUS = 32;

export interface Consumption {
  /** Codes that may be used without their secret. */
  allowed?: 'all' | 'registered' | 'none';
  /** The secret of the QR code. */
  secret?: string;
  /** `home` is the hash of the code where its device becomes one of home (contract 12 §2). */
  use?(policy: CodePolicy, routes?: RoutesRecord, home?: string): Promise<unknown>;
}

/** A code that can be used, or a request to pair; never the whole code. */
export interface PendingCode {
  policy: CodePolicy;
  /** Epoch seconds. */
  expiresAt: number;
  /** First characters of the code, for people. */
  masked: string;
  anonymous: boolean;
  /** SHA-256 of the secret beside the code, where there is one. */
  secretHash?: string;
  /** The key that signed its payload: with another one in its place, the code is withdrawn (contract 11 §3). */
  keyId?: string;
  /** Only on a request to pair: the peer that made it. */
  requestedBy?: string;
  /** The routes that its payload names. */
  routes?: RoutesRecord;
  /** At the edge, a code whose device becomes one of home (contract 12 §2). */
  forHome?: boolean;
}

/** A code that is for the other side of the mirror: that gets its hashes and its policy. */
export interface HandedCode {
  hash: string;
  secretHash?: string;
  masked: string;
  policy: CodePolicy;
}

/** The form in which a code of this host is handed to the other side. `secret` is that of its QR payload. */
export const handedCode = (code: string, policy: CodePolicy, secret?: string): HandedCode => ({
  hash: sha256(code),
  masked: maskCode(code),
  policy,
  ...(secret !== undefined && { secretHash: sha256(secret) }),
});

export interface MintedCode {
  code: string;
  /** Epoch seconds, whole. */
  expiresAt: number;
}

/** A code for a QR payload, with the secret that a device may show beside it: 128 bits, base64url. */
export interface MintedPair extends MintedCode {
  secret: string;
}

export interface PairingCodesParts {
  store: Storage<PairingCodeRecord>;
  clock: Clock;
  log: Log;
  /** True if payloads are signed with this key now. @throws RelayError `unavailable` when that cannot be found out. */
  isCurrentKey?(keyId: string): Promise<boolean>;
  /** `masked` names the code for people. */
  changed?(change: 'registered' | 'requested' | 'used' | 'expired', masked: string): void;
}

export type PairingCodes = Awaited<ReturnType<typeof openPairingCodes>>;

/**
 * One-shot codes of 6 characters, good for ten minutes (contract 01 §5.1, uses logged as in §10). Memory decides, before
 * the first await: of two callers one gets a code. Methods resolve when the change is stored. Codes are kept by their
 * hash: a copy of the store does not show them, though 31 bits are soon guessed from a hash. Codes for a QR payload
 * have a secret of 128 bits beside them, which nobody guesses: a device that shows it is not subject to limits on
 * guesses.
 *
 * A caller from elsewhere only makes a request to pair, with a code that is no good until the host registers it (§5.5).
 */
export async function openPairingCodes({ store, clock, log, isCurrentKey, changed }: PairingCodesParts) {
  const codes = new Map<string, PendingCode>();
  const requests = new Map<string, PendingCode>();

  /** Removes an expired code. If that fails, it is removed when it is loaded again. */
  function drop(entries: Map<string, PendingCode>, hash: string): void {
    changed?.('expired', entries.get(hash)?.masked ?? '');
    entries.delete(hash);
    store
      .removeItem(hash)
      .catch((error) => log.warn(`an expired pairing code could not be removed: ${describeError(error)}`));
  }

  function dropExpired(): void {
    const now = seconds(clock);
    for (const entries of [codes, requests]) {
      for (const [hash, { expiresAt }] of entries) if (expiresAt <= now) drop(entries, hash);
    }
  }

  /** @throws RelayError `unavailable` when it cannot be stored. */
  async function put(
    entries: Map<string, PendingCode>,
    code: string,
    given: Pick<PendingCode, 'policy' | 'anonymous' | 'requestedBy' | 'secretHash' | 'keyId' | 'forHome'>,
  ): Promise<MintedCode> {
    return { code, expiresAt: await putHash(entries, sha256(code), { ...given, masked: maskCode(code) }) };
  }

  /** Returns when it expires. */
  async function putHash(
    entries: Map<string, PendingCode>,
    hash: string,
    given: Omit<PendingCode, 'expiresAt'>,
  ): Promise<number> {
    const expiresAt = Math.floor(seconds(clock)) + LIFETIME;
    const entry = { ...given, expiresAt };
    entries.set(hash, entry);
    try {
      await store.setItem(hash, toRecord(entry));
    } catch (cause) {
      if (entries.get(hash) === entry) entries.delete(hash);
      throw new RelayError('unavailable', 'the pairing code could not be stored: try again later', { cause });
    }
    changed?.(entries === codes ? 'registered' : 'requested', entry.masked);
    return expiresAt;
  }

  /** @throws RelayError `rate-limited` when too many codes are pending, `unavailable` when it cannot be stored. */
  async function add(
    code: string,
    given: Pick<PendingCode, 'policy' | 'anonymous' | 'secretHash' | 'keyId' | 'forHome'>,
  ): Promise<MintedCode> {
    dropExpired();
    const known = codes.get(sha256(code));
    if (!known && codes.size >= MAX_PENDING) throw tooMany(LIFETIME);
    // A QR code that is on show stays good when its code is registered again.
    return put(codes, code, { secretHash: known?.secretHash, ...given });
  }

  function fresh(): string {
    for (;;) {
      const code = randomString(ALPHABET, 6);
      const hash = sha256(code);
      if (!codes.has(hash) && !requests.has(hash)) return code;
    }
  }

  /** Makes a code good again whose use failed. */
  function giveBack(hash: string, entry: PendingCode): void {
    if (codes.has(hash)) return;
    codes.set(hash, entry);
    store
      .setItem(hash, toRecord(entry))
      .catch((error) => log.warn(`a pairing code could not be stored again: ${describeError(error)}`));
  }

  for (const [hash, entry] of await loadAll({ store, log, read: fromRecord })) {
    if (entry.expiresAt <= seconds(clock)) await store.removeItem(hash);
    else (entry.requestedBy === undefined ? codes : requests).set(hash, entry);
  }

  return {
    /** Registers a code; a pending one gets this policy and its full time again, a requested one becomes good. */
    async register(code: string, policy: CodePolicy, { forHome = false } = {}): Promise<MintedCode> {
      const minted = await add(code, { policy, anonymous: false, forHome });
      requests.delete(sha256(code));
      log.info(`registered pairing code ${maskCode(code)}: ${describePolicy(policy)}`);
      return minted;
    },

    /** A new code for the host's own QR payload, which the key with this id signs. */
    async mint(policy: CodePolicy, keyId?: string, { forHome = false } = {}): Promise<MintedPair> {
      const secret = newSecret();
      const given = { policy, anonymous: false, secretHash: sha256(secret), keyId, forHome };
      return { ...(await add(fresh(), given)), secret };
    },

    /** A new code that is not good here, for the other side of the mirror. */
    draw: (): Omit<MintedPair, 'expiresAt'> => ({ code: fresh(), secret: newSecret() }),

    /**
     * Takes a code of home, which is good here alone (contract 12 §2). Resolves with its end, epoch seconds.
     * @throws RelayError `rate-limited` when too many codes are pending, `unavailable` when it cannot be stored.
     */
    async accept({ hash, ...given }: HandedCode): Promise<number> {
      dropExpired();
      if (!codes.has(hash) && codes.size >= MAX_PENDING) throw tooMany(LIFETIME);
      const expiresAt = await putHash(codes, hash, { ...given, anonymous: false, forHome: true });
      requests.delete(hash);
      log.info(`took pairing code ${given.masked} of home: ${describePolicy(given.policy)}`);
      return expiresAt;
    },

    /** True if a code can be used here. */
    isPending: (hash: string): boolean => (codes.get(hash)?.expiresAt ?? 0) > seconds(clock),

    /** Notes the routes that the payload of a code names. Never rejects: without them, they are unknown. */
    async setRoutes(code: string, routes: RoutesRecord): Promise<void> {
      const hash = sha256(code);
      const entry = codes.get(hash);
      if (!entry) return;
      entry.routes = routes;
      await store
        .setItem(hash, toRecord(entry))
        .catch((error) => log.warn(`the routes of a pairing code could not be stored: ${describeError(error)}`));
      // Used up or expired meanwhile.
      if (codes.get(hash) !== entry) await store.removeItem(hash).catch(() => {});
    },

    /** A new code without any policy, for a host that calls `POST /pairing`; at most 32 of these are pending at once. */
    async mintAnonymous(): Promise<MintedCode> {
      dropExpired();
      const count = [...codes.values()].filter((entry) => entry.anonymous).length;
      if (count >= MAX_ANONYMOUS) throw tooMany(60);
      return add(fresh(), { policy: {}, anonymous: true });
    },

    /** A peer elsewhere asks to pair: a code that is no good until it is registered. At most 32 requests wait at once. */
    async request(peer: string): Promise<MintedCode> {
      dropExpired();
      if (requests.size >= MAX_ANONYMOUS) throw tooMany(60);
      return put(requests, fresh(), { policy: {}, anonymous: true, requestedBy: peer });
    },

    /**
     * Uses a code up: its policy, or undefined when it is not pending or not allowed. With `registered`, codes without a
     * policy are not. A `secret` decides by itself: with a wrong one, or for a code without one, the right code is
     * refused too, since guesses at codes beside it would not be counted. `use` is part of the use: the code stays good
     * when either fails (contract 01 §6.7).
     * A code whose key was replaced is used up, and no good.
     * @throws RelayError `unavailable` when the use cannot be stored, as the code would be good again after a sleep.
     */
    async consume(code: string, { allowed = 'all', secret, use }: Consumption = {}): Promise<CodePolicy | undefined> {
      const hash = sha256(code);
      // Hashed for unknown codes too: the time that it takes must not tell them apart.
      const secretHash = secret === undefined ? undefined : sha256(secret);
      const entry = codes.get(hash);
      if (!entry) return undefined;
      if (secretHash !== undefined) {
        if (!timingSafeEqual(entry.secretHash ?? '', secretHash)) return undefined;
      } else if (allowed === 'none' || (allowed === 'registered' && entry.anonymous)) return undefined;
      codes.delete(hash);
      try {
        await store.removeItem(hash).catch((cause) => Promise.reject(notStored(cause)));
        if (entry.expiresAt <= seconds(clock)) return undefined;
        if (entry.keyId !== undefined && (await isCurrentKey?.(entry.keyId)) === false) {
          changed?.('expired', entry.masked);
          log.warn(`refused pairing code ${maskCode(code)}: the key that signed it was replaced`);
          return undefined;
        }
        await use?.(entry.policy, entry.routes, entry.forHome ? hash : undefined);
      } catch (error) {
        giveBack(hash, entry);
        throw error;
      }
      changed?.('used', entry.masked);
      log.info(`consumed pairing code ${maskCode(code)}: ${describePolicy(entry.policy)}`);
      return entry.policy;
    },

    /**
     * Removes codes whose key was replaced. Those of which that cannot be found out stay, and are asked about when
     * used.
     */
    async withdrawReplaced(): Promise<void> {
      const keyIds = new Set([...codes.values()].flatMap(({ keyId }) => keyId ?? []));
      for (const keyId of keyIds) {
        if ((await isCurrentKey?.(keyId).catch(() => true)) !== false) continue;
        for (const [hash, entry] of codes) if (entry.keyId === keyId) drop(codes, hash);
      }
    },

    /** Pending codes and requests, oldest first (contract 09 §4). */
    waiting(): { codes: PendingCode[]; requests: PendingCode[] } {
      dropExpired();
      return { codes: [...codes.values()], requests: [...requests.values()] };
    },
  };
}

const newSecret = (): string => base64url(randomBytes(SECRET_LENGTH));

const tooMany = (retryAfter: number): RelayError =>
  new RelayError('rate-limited', 'too many pairing codes are waiting to be used', { retryAfter });

const toRecord = ({
  policy,
  expiresAt,
  masked,
  anonymous,
  secretHash,
  keyId,
  requestedBy,
  routes,
  forHome,
}: PendingCode): PairingCodeRecord => ({
  ...policyBody(policy),
  expires_at: expiresAt,
  masked,
  anonymous,
  secret_sha256: secretHash,
  key_id: keyId,
  requested_by: requestedBy,
  ...(routes && { routes }),
  ...(forHome && { for_home: true }),
});

function fromRecord(value: unknown): PendingCode | undefined {
  if (!isObject(value) || typeof value.expires_at !== 'number') return undefined;
  const { expires_at: expiresAt, masked, anonymous, secret_sha256: secretHash, requested_by: requestedBy } = value;
  try {
    return {
      policy: readPolicy(value),
      expiresAt,
      masked: typeof masked === 'string' ? masked : maskCode(''),
      anonymous: anonymous === true,
      secretHash: typeof secretHash === 'string' ? secretHash : undefined,
      keyId: typeof value.key_id === 'string' ? value.key_id : undefined,
      requestedBy: typeof requestedBy === 'string' ? requestedBy : undefined,
      routes: readRoutes(value.routes),
      forHome: value.for_home === true,
    };
  } catch {
    return undefined;
  }
}
