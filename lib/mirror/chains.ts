import { hmac } from '@noble/hashes/hmac.js';
import { sha256 as sha256Bytes } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '../kit/bytes.ts';
import type { JsonObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import { type Audience, refreshExpiry, refreshTokenOf } from '../sessions/refresh.ts';

/** The first credentials of a chain. */
export type ChainTokens = { session_token: string; refresh_token: string };

/**
 * The first credentials of a family's chain for one side, `own` being home. They derive from a secret of the mirror, so that
 * home stores no token and can send the same ones again.
 */
export function chainTokens(secret: string, audience: Audience, family: string, chain: number): ChainTokens {
  const side = audience === 'own' ? 'home' : 'mailbox';
  const derive = (what: string) =>
    hmac(sha256Bytes, utf8ToBytes(secret), utf8ToBytes(`svc-relay ${side} v1\n${what}\n${family}\n${chain}`));
  return {
    session_token: bytesToHex(derive('session')),
    refresh_token: refreshTokenOf(family, derive('refresh').subarray(0, 16), audience),
  };
}

/** The hashes of a chain's first credentials, as members of a stored session. */
export const chainBody = ({ session_token, refresh_token }: ChainTokens, chain: number): JsonObject => ({
  token_sha256: sha256(session_token),
  token_prefix: session_token.slice(0, 8),
  refresh: {
    sha256: sha256(refresh_token),
    replaced: [],
    created_at: chain,
    last_used: chain,
    expires_at: refreshExpiry(chain),
  },
  chain,
});
