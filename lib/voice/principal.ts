import type { Session } from '../sessions/session.ts';

/**
 * Who uses voice (contract 05 §2). Two requests are of the same principal when kind and key are equal: the key of a
 * session is its device id, else its family, so that a refreshed token of a device is the same principal; that of an API
 * bearer is the SHA-256 of the token.
 */
export type VoicePrincipal = { kind: 'session'; key: string; session: Session } | { kind: 'api'; key: string };

export const isSamePrincipal = (a: VoicePrincipal, b: VoicePrincipal): boolean => a.kind === b.kind && a.key === b.key;
