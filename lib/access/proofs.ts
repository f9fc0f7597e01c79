import { decodeProtectedHeader } from 'jose/decode/protected_header';
import { compactVerify } from 'jose/jws/compact/verify';
import { base64url, fromBase64url, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject, parseObject } from '../kit/json.ts';
import { digestOf } from '../kit/sha256.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { offeredWith } from './bearer.ts';
import type { HeaderReader } from './peer.ts';

/** Header with a proof, and the header of a 401 with the nonce for the next one (RFC 9449 §4.1, §8). */
const PROOF_HEADER = 'dpop';
export const NONCE_HEADER = 'dpop-nonce';
/** Prefix of the proof in a subprotocol of a page's voice socket. */
const PROOF_PROTOCOL = 'svc.proof.';

const ALGORITHM = 'ES256';
const TYPE = 'dpop+jwt';
/** Our proofs take some 500 characters. */
const MAX_PROOF = 2048;
const JTI = /^[\w-]{16,64}$/;
/** A coordinate of P-256, 32 bytes. */
const COORDINATE = /^[\w-]{43}$/;
/** Milliseconds for which a nonce is issued, and for which it is still accepted afterwards. */
const WINDOW = 300_000;
/** Proofs accepted per nonce, which is stale after them, so that no id of a used proof is ever evicted. */
const MAX_USED = 50_000;
/** Imported keys to cache: importing one costs as much as a verification. */
const MAX_KEYS = 256;

/** The values that a proof has to cover. */
export interface ProofTarget {
  method: string;
  /** Path below the address of the relay, without the query: a page cannot know the prefix that proxies remove. */
  path: string;
  /** The credential that the proof goes with. */
  token: string;
}

export type Verdict =
  /** `thumbprint` is that of the key (RFC 7638). */
  | { kind: 'proved'; thumbprint: string }
  /** Made with an old nonce, or without one. */
  | { kind: 'stale' }
  | { kind: 'wrong' };

export type Proofs = ReturnType<typeof createProofs>;

interface NonceWindow {
  nonce: string;
  /** Monotonic ms. */
  from: number;
  /** Ids of the proofs accepted with this nonce. */
  used: Set<string>;
}

interface PublicKey {
  x: string;
  y: string;
}

const WRONG: Verdict = { kind: 'wrong' };
const STALE: Verdict = { kind: 'stale' };

/**
 * Verifies proofs that a caller holds the key of its key-bound session, like DPoP (RFC 9449; handlers/web/README.md).
 * Their life is limited by the relay's nonce and not by `iat`: phones have wrong clocks, and an attacker with a
 * moment's use of a key could sign proofs for next year. Nonces and the ids of used proofs are in memory only: a
 * restart or a sleep invalidates earlier proofs, and clients make another one with the new nonce.
 */
export function createProofs(clock: Clock) {
  let current: NonceWindow | undefined;
  let previous: NonceWindow | undefined;
  const keys = new Map<string, CryptoKey>();

  const age = ({ from }: NonceWindow): number => clock.monotonic() - from;

  function issuing(): NonceWindow {
    if (current && age(current) < WINDOW && current.used.size < MAX_USED) return current;
    previous = current;
    current = { nonce: base64url(randomBytes(16)), from: clock.monotonic(), used: new Set() };
    return current;
  }

  function windowOf(nonce: unknown): NonceWindow | undefined {
    const found = [current, previous].find((window) => window?.nonce === nonce);
    return found && age(found) < 2 * WINDOW && found.used.size < MAX_USED ? found : undefined;
  }

  async function keyOf(thumbprint: string, { x, y }: PublicKey): Promise<CryptoKey> {
    const known = keys.get(thumbprint);
    if (known) return known;
    const jwk = { kty: 'EC', crv: 'P-256', x, y };
    const key = await crypto.subtle.importKey('jwk', jwk, { name: 'ECDSA', namedCurve: 'P-256' }, false, ['verify']);
    if (keys.size >= MAX_KEYS) keys.delete(keys.keys().next().value as string);
    keys.set(thumbprint, key);
    return key;
  }

  return {
    /** The nonce for new proofs, and the seconds for which it is accepted at least. */
    nonce(): { nonce: string; expiresIn: number } {
      const window = issuing();
      return { nonce: window.nonce, expiresIn: Math.floor((2 * WINDOW - age(window)) / 1000) };
    },

    /**
     * Verifies a proof, which is accepted once only. With `expected`, a proof of another key is refused without
     * verifying it. Never rejects.
     */
    async verify(proof: string, { method, path, token }: ProofTarget, expected?: string): Promise<Verdict> {
      const read = readProof(proof);
      if (!read) return WRONG;
      const { key, claims } = read;
      const thumbprint = thumbprintOf(key);
      if (expected !== undefined && thumbprint !== expected) return WRONG;
      const { htm, htu, ath, jti, iat, nonce } = claims;
      if (htm !== method || htu !== path || ath !== digestOf(token)) return WRONG;
      if (typeof jti !== 'string' || !JTI.test(jti) || typeof iat !== 'number') return WRONG;
      if (!windowOf(nonce)) return STALE;
      try {
        await compactVerify(proof, await keyOf(thumbprint, key), { algorithms: [ALGORITHM] });
      } catch {
        return WRONG;
      }
      // The nonce may have become stale during the await.
      const window = windowOf(nonce);
      if (!window) return STALE;
      // A browser repeats a request by itself when its connection breaks; the page then makes another proof.
      if (window.used.has(jti)) return STALE;
      window.used.add(jti);
      return { kind: 'proved', thumbprint };
    },
  };
}

/** Key and claims of a proof, unverified; null if malformed. */
function readProof(proof: string): { key: PublicKey; claims: Record<string, unknown> } | null {
  if (proof.length > MAX_PROOF) return null;
  try {
    const { alg, typ, jwk } = decodeProtectedHeader(proof);
    if (alg !== ALGORITHM || typ !== TYPE || !isObject(jwk)) return null;
    const { kty, crv, x, y } = jwk;
    if (kty !== 'EC' || crv !== 'P-256' || 'd' in jwk || !isCoordinate(x) || !isCoordinate(y)) return null;
    const payload = fromBase64url(proof.split('.')[1] ?? '');
    const claims = payload && parseObject(decodeUtf8(payload));
    return claims ? { key: { x, y }, claims } : null;
  } catch {
    return null;
  }
}

const isCoordinate = (value: unknown): value is string => typeof value === 'string' && COORDINATE.test(value);

/** RFC 7638: the hash of the required members in alphabetical order. */
const thumbprintOf = ({ x, y }: PublicKey): string => digestOf(`{"crv":"P-256","kty":"EC","x":"${x}","y":"${y}"}`);

/** The proof of a request; a page's upgrade has it in a subprotocol, exactly one. Null without it. */
export function proofOf(headers: HeaderReader): string | null {
  const header = headers.get(PROOF_HEADER);
  return header !== null || headers.get('upgrade') === null ? header : offeredWith(PROOF_PROTOCOL, headers);
}
