import type { Pairing } from '../../../lib/companion/link/settings.ts';
import { openStore } from './browser-storage.ts';

/** The pairing as stored in this browser. The service worker only reads it. */
export interface StoredPairing {
  deviceId: string;
  pairing: Pairing | null;
}

export const pairingDatabase = () => openStore('svc', 'keep');

/** The HTTP address of the relay with this socket, with a trailing slash. */
export const httpBase = (socketUrl: string): string => socketUrl.replace(/^ws/, 'http').replace(/ws$/, '');

/** The socket that accepts the session of a pairing; undefined while only its mailbox can be reached. */
export const homeOf = ({ endpoints, last_good: last }: Pairing): string | undefined =>
  (endpoints.find(({ url }) => url === last) ?? endpoints[0])?.url;

/** Several relays may share an origin, each below a separate path. */
export const pairingKey = (base: string): string => `pairing ${new URL(base).pathname}`;

/** Name of the session's key (`proof.ts`). Separate from the pairing, which a tab of an older version writes as a whole. */
export const proofKeyName = (base: string): string => `key ${new URL(base).pathname}`;

/** Name of the key that opens texts sealed for this browser (`sealing.ts`). */
export const boxKeyName = (base: string): string => `box ${new URL(base).pathname}`;
