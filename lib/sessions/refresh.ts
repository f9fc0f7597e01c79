import { base64url, bytesToHex, concatBytes, fromBase64url, hexToBytes, randomBytes } from '../kit/bytes.ts';
import { DAY } from './grants.ts';
import type { Refresh } from './session.ts';

const LIFETIME = 180 * DAY;
const OVERLAP = 600;
/** Replaced tokens kept per session. More than one is kept because answers get lost. */
const MAX_REPLACED = 8;
/** Bytes of a token that name its family, and as many random ones. */
const HALF = 16;
/** Ends a token for the edge: shown at the wrong side, it is no dead token of that side. */
const MAILBOX_END = Uint8Array.of(1);

/** The relay that a token is for: the one that paired the device, or its mailbox at the edge (contract 12 §2). */
export type Audience = 'own' | 'mailbox';

/**
 * A new refresh token, 43 characters, 44 for the mailbox. Its first half names the family: every token that the family
 * ever had is known by it, so a dead one is recognized without a list of them, however long ago it died.
 */
export const newRefreshToken = (family: string, audience: Audience): string =>
  refreshTokenOf(family, randomBytes(HALF), audience);

/** The refresh token of a family with these 16 bytes, which must be secret. */
export const refreshTokenOf = (family: string, half: Uint8Array, audience: Audience): string =>
  base64url(concatBytes(hexToBytes(family), half, audience === 'own' ? new Uint8Array() : MAILBOX_END));

/** The family that a token names, good or dead. Tokens from before 1.0 name none. */
export function familyOf(token: string): string | undefined {
  const bytes = fromBase64url(token);
  const isToken = bytes?.length === 2 * HALF || bytes?.length === 2 * HALF + 1;
  return isToken ? bytesToHex(bytes.subarray(0, HALF)) : undefined;
}

/** The relay that a token with a family is for. */
export const audienceOf = (token: string): Audience =>
  fromBase64url(token)?.length === 2 * HALF + 1 ? 'mailbox' : 'own';

/** When a credential that was made at `createdAt` ends, however often it is rotated; epoch seconds. */
export const refreshExpiry = (createdAt: number): number => createdAt + LIFETIME;

/** Every hash by which a refresh credential is found, good or not. */
export const hashesOf = (refresh: Refresh | null): string[] =>
  refresh ? [refresh.hash, ...refresh.replaced.map(({ hash }) => hash)] : [];

/** The credential after a rotation at `now`: the token it replaces stays good for ten minutes (contract 01 §6.5). */
export function rotated(refresh: Refresh | null, hash: string, now: number): Refresh {
  // An expired token must not become good again as a replaced one.
  const old = refresh && refresh.expiresAt > now ? refresh : null;
  const replaced = (old?.replaced ?? []).filter(({ until }) => until > now);
  if (old) replaced.push({ hash: old.hash, until: now + OVERLAP });
  // The oldest stays: a client whose answers get lost presents that one again and again.
  if (replaced.length > MAX_REPLACED) replaced.splice(1, replaced.length - MAX_REPLACED);
  return {
    hash,
    replaced,
    createdAt: old?.createdAt ?? now,
    lastUsed: now,
    expiresAt: old?.expiresAt ?? refreshExpiry(now),
  };
}

/** True if a hash is the current token's, or that of a replaced one that is still good. */
export function isGood(refresh: Refresh | null, hash: string, now: number): boolean {
  if (!refresh || refresh.expiresAt <= now) return false;
  return refresh.hash === hash || refresh.replaced.some((one) => one.hash === hash && one.until > now);
}

/**
 * The credential without the tokens older than a presented one: its bearer needs them no more. Same if there are none.
 */
export function withoutOlder(refresh: Refresh, hash: string): Refresh {
  const { replaced } = refresh;
  const from = refresh.hash === hash ? replaced.length : replaced.findIndex((one) => one.hash === hash);
  return from > 0 ? { ...refresh, replaced: replaced.slice(from) } : refresh;
}
