import type { Storage } from 'unstorage';
import type { PairingCodeRecord, RoutesRecord } from '../../storage/schema.ts';
import { describeError, notStored, RelayError } from '../errors.ts';
import { base64url, randomBytes, timingSafeEqual } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { loadAll } from '../kit/entries.ts';
import { createEvent } from '../kit/event.ts';
import { isObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import { readRoutes } from '../sessions/session.ts';
import { maskCode, newPairingCode } from './code.ts';
import { type CodePolicy, describePolicy, policyBody, readPolicy } from './policy.ts';

const LIFETIME = 600;
/** Bytes of the secret beside a code. */
const SECRET_LENGTH = 16;
const MAX_PENDING = 256;
/** Maximum pending codes without a policy, and maximum pending requests to pair. */
const MAX_ANONYMOUS = 32;

export interface Consumption {
  /** Codes that may be used without their secret. */
  allowed?: 'all' | 'registered' | 'none';
  /** The secret of the QR code. */
  secret?: string;
  /** `home` is the hash of the code if its device becomes one of home (contract 12 §2). */
  use?(policy: CodePolicy, routes?: RoutesRecord, home?: string): Promise<unknown>;
}

/** A usable code, or a request to pair, without the whole code. */
export interface PendingCode {
  policy: CodePolicy;
  /** Epoch seconds. */
  expiresAt: number;
  /** First characters of the code, for display. */
  masked: string;
  anonymous: boolean;
  /** SHA-256 of the secret beside the code, if it has one. */
  secretHash?: string;
  /** The key that signed its payload. If the key was replaced, the code is withdrawn (contract 11 §3). */
  keyId?: string;
  /** Only on a request to pair: the requesting peer. */
  requestedBy?: string;
  /** The routes in its payload. */
  routes?: RoutesRecord;
  /** At the edge, a code whose device becomes one of home (contract 12 §2). */
  forHome?: boolean;
}

/** A code for the other side of the mirror, which gets its hashes and its policy. */
export interface HandedCode {
  hash: string;
  secretHash?: string;
  masked: string;
  policy: CodePolicy;
}

/** The form in which a code of this host is handed to the other side. `secret` is the one in its QR payload. */
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

/** A code for a QR payload, with the secret that a device may present with it: 128 bits, base64url. */
export interface MintedPair extends MintedCode {
  secret: string;
}

export interface PairingCodesDeps {
  store: Storage<PairingCodeRecord>;
  clock: Clock;
  log: Log;
  /** True if this key signs payloads now. @throws RelayError `unavailable` if that cannot be determined. */
  isCurrentKey?(keyId: string): Promise<boolean>;
}

export type PairingCodes = Awaited<ReturnType<typeof openPairingCodes>>;

/**
 * One-time codes of 6 characters, valid for ten minutes (contract 01 §5.1, uses logged as in §10). Memory decides before the
 * first await, so that only one of two callers gets a code. Methods resolve when the change is stored. Codes are stored as
 * hashes, so a copy of the store does not show them, although 31 bits are soon guessed from a hash. Codes for a QR payload
 * also have a secret of 128 bits, which cannot be guessed; a device that presents it is not subject to limits on guesses.
 *
 * A remote caller only makes a request to pair, with a code that is invalid until the host registers it (§5.5).
 */
export async function openPairingCodes({ store, clock, log, isCurrentKey }: PairingCodesDeps) {
  const changes = createEvent<[change: 'registered' | 'requested' | 'used' | 'expired', masked: string]>();
  const codes = new Map<string, PendingCode>();
  const requests = new Map<string, PendingCode>();

  /** Removes an expired code. If that fails, it is removed at the next load. */
  function drop(entries: Map<string, PendingCode>, hash: string): void {
    changes.emit('expired', entries.get(hash)?.masked ?? '');
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

  /** @throws RelayError `unavailable` if it cannot be stored. */
  async function put(
    entries: Map<string, PendingCode>,
    code: string,
    given: Omit<PendingCode, 'expiresAt' | 'masked'>,
  ): Promise<MintedCode> {
    return { code, expiresAt: await putHash(entries, sha256(code), { ...given, masked: maskCode(code) }) };
  }

  /** Returns the time of expiry. */
  async function putHash(
    entries: Map<string, PendingCode>,
    hash: string,
    given: Omit<PendingCode, 'expiresAt'>,
  ): Promise<number> {
    const expiresAt = Math.floor(seconds(clock)) + LIFETIME;
    const entry = { ...given, expiresAt };
    const before = entries.get(hash);
    entries.set(hash, entry);
    try {
      await store.setItem(hash, toRecord(entry));
    } catch (cause) {
      if (entries.get(hash) === entry) {
        if (before) entries.set(hash, before);
        else entries.delete(hash);
      }
      throw new RelayError('unavailable', 'the pairing code could not be stored: try again later', { cause });
    }
    changes.emit(entries === codes ? 'registered' : 'requested', entry.masked);
    return expiresAt;
  }

  /** @throws RelayError `rate-limited` if too many codes are pending, `unavailable` if it cannot be stored. */
  async function add(
    code: string,
    given: Pick<PendingCode, 'policy' | 'anonymous' | 'secretHash' | 'keyId' | 'forHome'>,
  ): Promise<MintedCode> {
    dropExpired();
    const known = codes.get(sha256(code));
    if (!known && codes.size >= MAX_PENDING) throw tooMany(LIFETIME);
    // A displayed QR code stays valid if its code is registered again, but no longer than its key.
    const { secretHash, keyId, routes } = known ?? {};
    return put(codes, code, { secretHash, keyId, routes, ...given });
  }

  function fresh(): string {
    for (;;) {
      const code = newPairingCode();
      const hash = sha256(code);
      if (!codes.has(hash) && !requests.has(hash)) return code;
    }
  }

  /** Restores a code whose use failed. */
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
    /** Calls back with every change of a code; `masked` names it for people. */
    onChange: changes.on,

    /** Registers a code. A pending one gets this policy and its full time again; a requested one becomes valid. */
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

    /** A new code for the other side of the mirror, invalid here. */
    draw: (): Omit<MintedPair, 'expiresAt'> => ({ code: fresh(), secret: newSecret() }),

    /**
     * Accepts a code of home, which is valid only here (contract 12 §2). Resolves with its expiry, epoch seconds.
     * @throws RelayError `rate-limited` if too many codes are pending, `unavailable` if it cannot be stored.
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

    /** Records the routes in the payload of a code. Never rejects; if that fails, they are unknown. */
    async setRoutes(code: string, routes: RoutesRecord): Promise<void> {
      const hash = sha256(code);
      const entry = codes.get(hash);
      if (!entry) return;
      entry.routes = routes;
      await store
        .setItem(hash, toRecord(entry))
        .catch((error) => log.warn(`the routes of a pairing code could not be stored: ${describeError(error)}`));
      // The code was used or has expired meanwhile.
      if (codes.get(hash) !== entry) await store.removeItem(hash).catch(() => {});
    },

    /** A new code without a policy, for a host that calls `POST /pairing`. At most 32 of these may be pending. */
    async mintAnonymous(): Promise<MintedCode> {
      dropExpired();
      const count = [...codes.values()].filter((entry) => entry.anonymous).length;
      if (count >= MAX_ANONYMOUS) throw tooMany(60);
      return add(fresh(), { policy: {}, anonymous: true });
    },

    /**
     * A remote peer requests to pair. Returns a code that is invalid until it is registered. At most 32 requests may be
     * pending.
     */
    async request(peer: string): Promise<MintedCode> {
      dropExpired();
      if (requests.size >= MAX_ANONYMOUS) throw tooMany(60);
      return put(requests, fresh(), { policy: {}, anonymous: true, requestedBy: peer });
    },

    /**
     * Uses a code. Returns its policy, or undefined if it is not pending or not allowed. With `registered`, codes without a
     * policy are not allowed. A `secret` must match: with a wrong one, or for a code without one, even the right code is
     * refused, since guesses with a secret are not counted. `use` is part of the use, and the code stays valid if either
     * fails (contract 01 §6.7). A code whose key was replaced is consumed but refused.
     * @throws RelayError `unavailable` if the use cannot be stored, since the code would be valid again after a sleep.
     */
    async consume(code: string, { allowed = 'all', secret, use }: Consumption = {}): Promise<CodePolicy | undefined> {
      const hash = sha256(code);
      // Hashed for unknown codes too, so that the time taken does not distinguish them.
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
          changes.emit('expired', entry.masked);
          log.warn(`refused pairing code ${maskCode(code)}: the key that signed it was replaced`);
          return undefined;
        }
        await use?.(entry.policy, entry.routes, entry.forHome ? hash : undefined);
      } catch (error) {
        giveBack(hash, entry);
        throw error;
      }
      changes.emit('used', entry.masked);
      log.info(`consumed pairing code ${maskCode(code)}: ${describePolicy(entry.policy)}`);
      return entry.policy;
    },

    /** Removes codes whose key was replaced. If that cannot be determined, a code stays and is checked again when used. */
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
