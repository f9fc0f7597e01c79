import { jwtVerify } from 'jose/jwt/verify';
import { importSPKI } from 'jose/key/import';
import type { Log } from '../log.ts';

export const OPERATOR_AUDIENCE = 'svc-relay-operator';
export const OPERATOR_ALGORITHM = 'EdDSA';

export type OperatorTokens = ReturnType<typeof createOperatorTokens>;

/**
 * Verifies operator tokens: short-lived JWTs signed by the operator's key. Without a public key, none is valid.
 * `publicKey` is a PEM (SPKI); its line ends may be written as `\n`.
 */
export function createOperatorTokens(publicKey: string | undefined, log: Log) {
  const key = publicKey && importSPKI(publicKey.replaceAll('\\n', '\n'), OPERATOR_ALGORITHM);
  // Reported once here; `verify` then refuses every token.
  if (key) key.catch(() => log.error('RELAY_OPERATOR_PUBLIC_KEY is not an Ed25519 public key in PEM form'));
  return {
    async verify(token: string | null): Promise<boolean> {
      if (!key || token === null) return false;
      try {
        await jwtVerify(token, await key, {
          algorithms: [OPERATOR_ALGORITHM],
          audience: OPERATOR_AUDIENCE,
          requiredClaims: ['exp'],
        });
        return true;
      } catch {
        return false;
      }
    },
  };
}
