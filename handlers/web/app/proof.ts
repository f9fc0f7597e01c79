import { base64url, utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { asObject } from '../../../lib/kit/json.ts';
import { webDigestOf } from '../../../lib/kit/web-sha256.ts';

/**
 * The key that the session is bound to. Its private half cannot be read, not even by this page; the browser signs with it.
 * The rest is public.
 */
export interface ProofKey {
  privateKey: CryptoKey;
  x: string;
  y: string;
}

/** The request that a proof covers. */
export interface ProofTarget {
  method: string;
  /** Relative to the relay's address. */
  path: string;
  token: string;
  key: ProofKey;
  /** Requires a nonce from this moment: a socket cannot be told another one, and a large body would be sent twice. */
  fresh?: boolean;
}

export type Prover = ReturnType<typeof createProver>;

/** Milliseconds for a nonce; without one, the relay answers 401 with the next. */
const NONCE_TIMEOUT = 5000;
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' };

/** A new key. In secure contexts only. */
export async function makeKey(): Promise<ProofKey> {
  const { privateKey, publicKey } = await crypto.subtle.generateKey(ALGORITHM, false, ['sign', 'verify']);
  const { x = '', y = '' } = await crypto.subtle.exportKey('jwk', publicKey);
  return { privateKey, x, y };
}

const encode = (value: object): string => base64url(utf8ToBytes(JSON.stringify(value)));

/** Makes proofs for the relay at `base` (README, "The key of a session"). */
export function createProver(base: string) {
  const root = new URL(base).pathname;
  let nonce = '';
  /** Epoch ms until which the nonce is used. */
  let usedUntil = 0;
  let usedFrom = 0;
  let asking: Promise<void> | undefined;

  /** A phone's clock may be wrong, or be set meanwhile, so only non-negative differences count. */
  const isFresh = (): boolean => nonce !== '' && Date.now() >= usedFrom && Date.now() < usedUntil;

  async function ask(): Promise<void> {
    const init = { cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(NONCE_TIMEOUT) } as const;
    try {
      const answer = asObject(await (await fetch(new URL('sessions/nonce', base), init)).json());
      if (typeof answer?.nonce !== 'string') return;
      nonce = answer.nonce;
      usedFrom = Date.now();
      usedUntil = usedFrom + (Number(answer.expires_in) || 0) * 500;
    } catch {
      // The request that needs the proof reports the error better.
    }
  }

  /** Requests a nonce once for all callers that need one. */
  function renewNonce(): Promise<void> {
    asking ??= ask().finally(() => {
      asking = undefined;
    });
    return asking;
  }

  async function sign({ method, path, token, key }: ProofTarget, given: string): Promise<string> {
    const header = { alg: 'ES256', typ: 'dpop+jwt', jwk: { kty: 'EC', crv: 'P-256', x: key.x, y: key.y } };
    const claims = {
      jti: base64url(crypto.getRandomValues(new Uint8Array(16))),
      htm: method,
      htu: `/${new URL(path, base).pathname.slice(root.length)}`,
      iat: Math.floor(Date.now() / 1000),
      ath: await webDigestOf(token),
      nonce: given,
    };
    const signed = `${encode(header)}.${encode(claims)}`;
    const bytes = utf8ToBytes(signed) as BufferSource;
    const signature = await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, key.privateKey, bytes);
    return `${signed}.${base64url(new Uint8Array(signature))}`;
  }

  return {
    /** A proof for one request or upgrade. */
    async prove(target: ProofTarget): Promise<string> {
      if (target.fresh || !isFresh()) await renewNonce();
      return sign(target, nonce);
    },

    /** A proof for the first frame of the channel socket, whose challenge contains another `nonce`. */
    proveSocket: (token: string, key: ProofKey, challenge?: string): Promise<string> =>
      sign({ method: 'GET', path: 'ws', token, key }, challenge ?? nonce),

    /**
     * After a 401, returns whether another proof may help: the nonce was old, or the browser had sent the `used` proof
     * twice.
     */
    take(response: Response, used: string | undefined): boolean {
      const next = response.headers.get('dpop-nonce');
      if (next === null || used === undefined) return false;
      if (nonce !== next) {
        nonce = next;
        usedFrom = Date.now();
        usedUntil = usedFrom + 60_000;
      }
      return true;
    },
  };
}
