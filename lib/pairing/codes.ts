import { RelayError } from '../errors.ts';
import { randomString } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { Policy } from '../sessions/grants.ts';
import type { TransportHint } from '../sessions/session.ts';
import { describePolicy } from './policy.ts';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
const LIFETIME = 600;
const MAX_PENDING = 256;
const MAX_ANONYMOUS = 32;

/** What the host decided for whoever presents the code. */
export interface CodePolicy extends Policy {
  transportHint?: TransportHint;
}

interface Pending {
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

export const isPairingCode = (code: string): boolean => /^[A-Z0-9]{6}$/.test(code);

/** For logs: enough to recognize a code, too little to use it. */
export const maskCode = (code: string): string => `${code.slice(0, 2)}****`;

export type PairingCodes = ReturnType<typeof createPairingCodes>;

/** One-shot codes of 6 characters, in memory, good for ten minutes (contract 01 §5.1). Their uses are logged (§10). */
export function createPairingCodes(clock: Clock, log: Log) {
  const pending = new Map<string, Pending>();

  function dropExpired(): void {
    const now = seconds(clock);
    for (const [code, entry] of pending) if (entry.expiresAt <= now) pending.delete(code);
  }

  function put(code: string, policy: CodePolicy, anonymous: boolean): MintedCode {
    dropExpired();
    if (!pending.has(code) && pending.size >= MAX_PENDING) {
      throw new RelayError('rate-limited', 'too many pairing codes are waiting to be used', { retryAfter: LIFETIME });
    }
    const expiresAt = Math.floor(seconds(clock)) + LIFETIME;
    pending.set(code, { policy, expiresAt, anonymous });
    return { code, expiresAt };
  }

  function fresh(): string {
    for (;;) {
      const code = randomString(ALPHABET, 6);
      if (!pending.has(code)) return code;
    }
  }

  return {
    /** Registers a code; a pending one gets this policy and its full time again. */
    register(code: string, policy: CodePolicy): MintedCode {
      const minted = put(code, policy, false);
      log.info(`registered pairing code ${maskCode(code)}: ${describePolicy(policy)}`);
      return minted;
    },

    /** A new code for the host's own QR payload. */
    mint: (policy: CodePolicy): MintedCode => put(fresh(), policy, false),

    /** A new code without any policy, for `POST /pairing`; at most 32 of these wait at once. */
    mintAnonymous(): MintedCode {
      dropExpired();
      const waiting = [...pending.values()].filter((entry) => entry.anonymous).length;
      if (waiting >= MAX_ANONYMOUS) {
        throw new RelayError('rate-limited', 'too many pairing codes are waiting to be used', { retryAfter: 60 });
      }
      return put(fresh(), {}, true);
    },

    /** Uses a code up. Its policy, or undefined when it is not pending: of two callers, one gets it. */
    consume(code: string): CodePolicy | undefined {
      const entry = pending.get(code);
      if (!entry) return undefined;
      pending.delete(code);
      if (entry.expiresAt <= seconds(clock)) return undefined;
      log.info(`consumed pairing code ${maskCode(code)}: ${describePolicy(entry.policy)}`);
      return entry.policy;
    },
  };
}
