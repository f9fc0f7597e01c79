import { decodeJwt } from 'jose/jwt/decode';
import { jwtVerify } from 'jose/jwt/verify';
import { importSPKI } from 'jose/key/import';
import { RelayError } from '../errors.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import type { Log } from '../log.ts';

/** Key with which `svc relay operator-token` signs. */
export const OPERATOR_ALGORITHM = 'EdDSA';
/** Seconds that a token may live: it is a bearer, and nothing revokes it. */
export const MAX_OPERATOR_TTL = 900;

/**
 * The first characters of a public key (SPKI, base64) of each algorithm, its object identifier. The key determines the
 * algorithm, so a token cannot ask for `none` or for HMAC with the public key.
 */
const ALGORITHMS: Readonly<Record<string, string>> = {
  EdDSA: 'MCowBQYDK2Vw',
  ES256: 'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQc',
};

/**
 * Verifies operator tokens: short-lived JWTs signed by the operator's key for one relay (contract 01 §12). Without a
 * public key, none is valid. `publicKey` is a PEM (SPKI) of Ed25519 or P-256; its line ends may be written as `\n`.
 */
export function createOperatorTokens(publicKey: string | undefined, clock: Clock, log: Log) {
  const key = publicKey && importPublicKey(publicKey.replaceAll('\\n', '\n'));
  // Reported once here; `verify` then refuses every token.
  if (key) {
    key.catch(() => log.error('RELAY_OPERATOR_PUBLIC_KEY is not an Ed25519 or P-256 public key in PEM form'));
  }
  return {
    /** True if a token is valid for one of `audiences`, the names and URLs of this relay. Never rejects. */
    async verify(token: string | null, audiences: readonly string[]): Promise<boolean> {
      if (!key || token === null) return false;
      try {
        const { algorithm, imported } = await key;
        const { payload } = await jwtVerify(token, imported, {
          algorithms: [algorithm],
          audience: [...audiences],
          requiredClaims: ['exp', 'aud'],
          currentDate: new Date(clock.now()),
        });
        return (payload.exp ?? Number.POSITIVE_INFINITY) <= seconds(clock) + MAX_OPERATOR_TTL;
      } catch {
        return false;
      }
    },
  };
}

/** True if a text is a public key that verifies operator tokens. */
export const isOperatorKey = (pem: string): Promise<boolean> =>
  importPublicKey(pem.replaceAll('\\n', '\n')).then(
    () => true,
    () => false,
  );

/** The expiry of a token that `verify` has accepted, epoch seconds. Null for anything but a token. */
export function endOfOperatorToken(token: string | null): number | null {
  try {
    return decodeJwt(token ?? '').exp ?? null;
  } catch {
    return null;
  }
}

async function importPublicKey(pem: string) {
  const base64 = pem.replace(/-----[A-Z ]+-----|\s/g, '');
  const algorithm = Object.keys(ALGORITHMS).find((name) => base64.startsWith(ALGORITHMS[name] as string));
  if (algorithm === undefined) throw new RelayError('invalid', 'unknown kind of key');
  return { algorithm, imported: await importSPKI(pem, algorithm) };
}
