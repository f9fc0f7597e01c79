import { base64url, bytesToHex, concatBytes, fromBase64url, hexToBytes, randomBytes } from '../kit/bytes.ts';
import { DAY } from './grants.ts';
import type { Refresh } from './session.ts';

const LIFETIME = 180 * DAY;
const OVERLAP = 600;
/** Maximum replaced tokens per session; several, because answers get lost. */
const MAX_REPLACED = 8;
/** Bytes of a token that identify its family, followed by as many random ones. */
const HALF = 16;
/** Last byte of a token for the edge, so that at the wrong side it does not count as a dead token of that side. */
const MAILBOX_END = Uint8Array.of(1);

/** The relay that a token is for: the one that paired the device, or the mailbox at the edge (contract 12 §2). */
export type Audience = 'own' | 'mailbox';

/**
 * A new refresh token, 43 characters, or 44 for the mailbox. Its first half identifies the family, so that even a token that
 * died long ago is recognized without a list.
 */
export const newRefreshToken = (family: string, audience: Audience): string =>
  refreshTokenOf(family, randomBytes(HALF), audience);

/** The refresh token of a family with these 16 bytes, which must be secret. */
export const refreshTokenOf = (family: string, half: Uint8Array, audience: Audience): string =>
  base64url(concatBytes(hexToBytes(family), half, audience === 'own' ? new Uint8Array() : MAILBOX_END));

/** The family of a token, valid or dead. Tokens from before 1.0 contain none. */
export function familyOf(token: string): string | undefined {
  const bytes = fromBase64url(token);
  const isToken = bytes?.length === 2 * HALF || bytes?.length === 2 * HALF + 1;
  return isToken ? bytesToHex(bytes.subarray(0, HALF)) : undefined;
}

/** The relay that a token with a family is for. */
export const audienceOf = (token: string): Audience =>
  fromBase64url(token)?.length === 2 * HALF + 1 ? 'mailbox' : 'own';

/** End of a credential that was made at `createdAt`, regardless of rotations; epoch seconds. */
export const refreshExpiry = (createdAt: number): number => createdAt + LIFETIME;

/** Every hash under which a refresh credential is found, valid or not. */
export const hashesOf = (refresh: Refresh | null): string[] =>
  refresh ? [refresh.hash, ...refresh.replaced.map(({ hash }) => hash)] : [];

/** The credential after a rotation at `now`. The replaced token stays valid for ten minutes (contract 01 §6.5). */
export function rotated(refresh: Refresh | null, hash: string, now: number): Refresh {
  // An expired token must not become valid again as a replaced one.
  const old = refresh && refresh.expiresAt > now ? refresh : null;
  const replaced = (old?.replaced ?? []).filter(({ until }) => until > now);
  if (old) replaced.push({ hash: old.hash, until: now + OVERLAP });
  // The oldest stays, because a client whose answers get lost presents that one again and again.
  if (replaced.length > MAX_REPLACED) replaced.splice(1, replaced.length - MAX_REPLACED);
  return {
    hash,
    replaced,
    createdAt: old?.createdAt ?? now,
    lastUsed: now,
    expiresAt: old?.expiresAt ?? refreshExpiry(now),
  };
}

/** True if a hash is that of the current token, or of a replaced one that is still valid. */
export function isGood(refresh: Refresh | null, hash: string, now: number): boolean {
  if (!refresh || refresh.expiresAt <= now) return false;
  return refresh.hash === hash || refresh.replaced.some((one) => one.hash === hash && one.until > now);
}

/**
 * The credential without the tokens older than the presented one, which its bearer no longer needs. The same object if there
 * are none.
 */
export function withoutOlder(refresh: Refresh, hash: string): Refresh {
  const { replaced } = refresh;
  const from = refresh.hash === hash ? replaced.length : replaced.findIndex((one) => one.hash === hash);
  return from > 0 ? { ...refresh, replaced: replaced.slice(from) } : refresh;
}
