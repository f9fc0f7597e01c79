import type { Storage } from 'unstorage';
import type { PairingCodeRecord } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import { randomString, sha256 } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import { loadAll } from '../kit/write-behind.ts';
import type { Log } from '../log.ts';
import { type CodePolicy, describePolicy, readPolicy } from './policy.ts';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
const LIFETIME = 600;
const MAX_PENDING = 256;
const MAX_ANONYMOUS = 32;

interface PendingCode {
  policy: CodePolicy;
  /** Epoch seconds. */
  expiresAt: number;
  anonymous: boolean;
}

export interface MintedCode {
  code: string;
  /** Epoch seconds, whole. */
  expiresAt: number;
}

export interface PairingCodesParts {
  store: Storage<PairingCodeRecord>;
  clock: Clock;
  log: Log;
}

export const isPairingCode = (code: string): boolean => /^[A-Z0-9]{6}$/.test(code);

/** For logs: enough to recognize a code, too little to use it. */
export const maskCode = (code: string): string => `${code.slice(0, 2)}****`;

export type PairingCodes = Awaited<ReturnType<typeof openPairingCodes>>;

/**
 * One-shot codes of 6 characters, good for ten minutes (contract 01 §5.1, uses logged as in §10). Memory decides, before
 * the first await: of two callers one gets a code. Methods resolve when the change is stored. Codes are kept by their
 * hash: a copy of the store does not show them, though 31 bits are soon guessed from a hash.
 */
export async function openPairingCodes({ store, clock, log }: PairingCodesParts) {
  const pending = new Map<string, PendingCode>();

  /** Removes an expired code. If that fails, it is removed when it is loaded again. */
  function drop(hash: string): void {
    pending.delete(hash);
    store
      .removeItem(hash)
      .catch((error) => log.warn(`an expired pairing code could not be removed: ${describeError(error)}`));
  }

  function dropExpired(): void {
    const now = seconds(clock);
    for (const [hash, { expiresAt }] of pending) if (expiresAt <= now) drop(hash);
  }

  /** @throws RelayError `rate-limited` when too many codes are pending, `unavailable` when it cannot be stored. */
  async function put(code: string, policy: CodePolicy, anonymous: boolean): Promise<MintedCode> {
    dropExpired();
    const hash = sha256(code);
    if (!pending.has(hash) && pending.size >= MAX_PENDING) {
      throw new RelayError('rate-limited', 'too many pairing codes are waiting to be used', { retryAfter: LIFETIME });
    }
    const expiresAt = Math.floor(seconds(clock)) + LIFETIME;
    const entry = { policy, expiresAt, anonymous };
    pending.set(hash, entry);
    try {
      await store.setItem(hash, toRecord(entry));
    } catch (cause) {
      if (pending.get(hash) === entry) pending.delete(hash);
      throw new RelayError('unavailable', 'the pairing code could not be stored: try again later', { cause });
    }
    return { code, expiresAt };
  }

  function fresh(): string {
    for (;;) {
      const code = randomString(ALPHABET, 6);
      if (!pending.has(sha256(code))) return code;
    }
  }

  for (const [hash, entry] of await loadAll(store, log, fromRecord)) {
    if (entry.expiresAt <= seconds(clock)) await store.removeItem(hash);
    else pending.set(hash, entry);
  }

  return {
    /** Registers a code; a pending one gets this policy and its full time again. */
    async register(code: string, policy: CodePolicy): Promise<MintedCode> {
      const minted = await put(code, policy, false);
      log.info(`registered pairing code ${maskCode(code)}: ${describePolicy(policy)}`);
      return minted;
    },

    /** A new code for the host's own QR payload. */
    mint: (policy: CodePolicy): Promise<MintedCode> => put(fresh(), policy, false),

    /** A new code without any policy, for `POST /pairing`; at most 32 of these are pending at once. */
    async mintAnonymous(): Promise<MintedCode> {
      dropExpired();
      const count = [...pending.values()].filter((entry) => entry.anonymous).length;
      if (count >= MAX_ANONYMOUS) {
        throw new RelayError('rate-limited', 'too many pairing codes are waiting to be used', { retryAfter: 60 });
      }
      return put(fresh(), {}, true);
    },

    /**
     * Uses a code up: its policy, or undefined when it is not pending. Rejects when the use cannot be stored: the code
     * would be good again after a sleep.
     */
    async consume(code: string): Promise<CodePolicy | undefined> {
      const hash = sha256(code);
      const entry = pending.get(hash);
      if (!entry) return undefined;
      pending.delete(hash);
      await store.removeItem(hash);
      if (entry.expiresAt <= seconds(clock)) return undefined;
      log.info(`consumed pairing code ${maskCode(code)}: ${describePolicy(entry.policy)}`);
      return entry.policy;
    },
  };
}

const toRecord = ({ policy, expiresAt, anonymous }: PendingCode): PairingCodeRecord => ({
  ttl_seconds: policy.ttlSeconds,
  grants: policy.grants,
  transport_hint: policy.transportHint,
  expires_at: expiresAt,
  anonymous,
});

function fromRecord(value: unknown): PendingCode | undefined {
  if (!isObject(value) || typeof value.expires_at !== 'number') return undefined;
  try {
    return { policy: readPolicy(value), expiresAt: value.expires_at, anonymous: value.anonymous === true };
  } catch {
    return undefined;
  }
}
