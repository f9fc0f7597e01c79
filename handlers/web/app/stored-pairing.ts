import type { Pairing } from '../../../lib/companion/link/settings.ts';
import { openStore } from './browser-storage.ts';

/** The pairing as this browser keeps it. The service worker reads it, and never writes. */
export interface StoredPairing {
  deviceId: string;
  pairing: Pairing | null;
}

export const pairingDatabase = () => openStore('svc', 'keep');

/** The address of the relay whose socket this is, with a slash at its end. */
export const httpBase = (socketUrl: string): string => socketUrl.replace(/^ws/, 'http').replace(/ws$/, '');

/** The socket that takes the session of a pairing; undefined while only its mailbox can be reached. */
export const homeOf = ({ endpoints, last_good: last }: Pairing): string | undefined =>
  (endpoints.find(({ url }) => url === last) ?? endpoints[0])?.url;

/** Several relays may share an origin, each below a path of its own. */
export const pairingKey = (base: string): string => `pairing ${new URL(base).pathname}`;

/** Name of the session's key (`proof.ts`). Apart from the pairing, which a tab of an older version writes as a whole. */
export const proofKeyName = (base: string): string => `key ${new URL(base).pathname}`;

/** Name of the key that opens what is sealed for this browser (`sealing.ts`). */
export const boxKeyName = (base: string): string => `box ${new URL(base).pathname}`;
