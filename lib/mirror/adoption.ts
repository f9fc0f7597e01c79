import * as v from 'valibot';
import type { Store } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { isObject, type JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { HandedCode, PairingCodes } from '../pairing/codes.ts';
import { type CodePolicy, policyBody, readPolicy } from '../pairing/policy.ts';
import type { Requests } from './requests.ts';

/** Seconds for which home knows a code of the edge: the device may have paired there while the link was down. */
const CODE_KNOWN = 30 * 86_400;
const MAX_CODES = 256;
const CODE = 'edge-code:';

const hash = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));
const Handed = v.object({ sha256: hash, secret_sha256: v.optional(hash), masked: v.pipe(v.string(), v.maxLength(16)) });

interface KnownCode {
  policy: CodePolicy;
  /** Until when home knows it, epoch seconds. */
  until: number;
}

export interface EdgeCodesParts {
  store: Store<'mirror'>;
  stored: ReadonlyMap<string, unknown>;
  clock: Clock;
  log: Log;
  requests: Requests;
  isOn(): boolean;
  isLinked(): boolean;
}

/** At home, the codes that are good at the edge alone (contract 12 §2): kept with their policy, by which home goes. */
export function openEdgeCodes({ store, stored, clock, log, requests, isOn, isLinked }: EdgeCodesParts) {
  const codes = new Map<string, KnownCode>();
  for (const [key, value] of stored) {
    const code = key.startsWith(CODE) ? readKnown(value) : undefined;
    if (code) codes.set(key.slice(CODE.length), code);
  }
  const forget = (code: string): void => {
    if (!codes.delete(code)) return;
    void store.removeItem(CODE + code).catch(() => log.warn('a pairing code of the edge could not be removed'));
  };

  return {
    /**
     * Hands a code to the edge. Resolves with its end there, epoch seconds; home has stored it before.
     * @throws RelayError `conflict` without a mirror or when the edge refuses, `unavailable` when it cannot be reached.
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
        // Without an answer, the edge may have it.
        if (!(error instanceof RelayError) || error.kind === 'conflict') forget(hash);
        throw error;
      });
      if (typeof end !== 'number')
        throw new RelayError('conflict', 'the edge is older than this relay: update it first');
      return end;
    },

    /** Whether a code was handed to the edge. */
    isAtEdge: (code: string): boolean => (codes.get(code)?.until ?? 0) > seconds(clock),

    /** Uses a code up: its policy, once. */
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

function readKnown(value: unknown): KnownCode | undefined {
  if (!isObject(value) || typeof value.until !== 'number' || !isObject(value.policy)) return undefined;
  try {
    return { policy: readPolicy(value.policy), until: value.until };
  } catch {
    return undefined;
  }
}

/**
 * At the edge, takes a code that home hands over. Resolves with the answer.
 * @throws RelayError when it is no code, or cannot be taken.
 */
export async function acceptCode(codes: PairingCodes, body: JsonObject): Promise<JsonObject> {
  const read = v.safeParse(Handed, body);
  if (!read.success || !isObject(body.policy)) throw new RelayError('invalid', 'home handed over what is no code');
  const { sha256, secret_sha256: secretHash, masked } = read.output;
  const policy = readPolicy(body.policy);
  return { expires_at: await codes.accept({ hash: sha256, secretHash, masked, policy }) };
}
