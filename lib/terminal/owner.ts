import { sha256 } from '../kit/bytes.ts';
import { isDeviceId } from '../sessions/device.ts';
import type { Session } from '../sessions/session.ts';

/** A paired device, as a tmux session remembers that it was attached there. Hashes, because every shell can read them. */
export interface Owner {
  /** Hash of the session family. */
  family: string;
  /** Hash of the device id; empty for a device without one. */
  device: string;
}

const LENGTH = 16;

export const ownerOf = ({ family, device }: Pick<Session, 'family' | 'device'>): Owner => ({
  family: familyHash(family),
  device: isDeviceId(device.id) ? sha256(device.id.toLowerCase()).slice(0, LENGTH) : '',
});

export const familyHash = (family: string): string => sha256(family).slice(0, LENGTH);

/**
 * True if an owner is not the device that was revoked: another family, unless that family is over and was an earlier
 * pairing of the same device. `isLiving` tells whether a family (its hash) is still paired.
 */
export const isAnother = (owner: Owner, revoked: Owner, isLiving: (family: string) => boolean): boolean =>
  owner.family !== revoked.family && (isLiving(owner.family) || owner.device === '' || owner.device !== revoked.device);
