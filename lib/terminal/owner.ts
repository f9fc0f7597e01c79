import { sha256 } from '../kit/sha256.ts';
import { isDeviceId } from '../sessions/device.ts';
import type { Session } from '../sessions/session.ts';

/** A paired device, as recorded in a tmux session that it was attached to. Hashes, because every shell can read them. */
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
 * True unless an owner is the revoked device: same family, or a family that is over and was an earlier pairing of the same
 * device. `isLiving` returns whether a family (its hash) is still paired.
 */
export const isAnother = (owner: Owner, revoked: Owner, isLiving: (family: string) => boolean): boolean =>
  owner.family !== revoked.family && (isLiving(owner.family) || owner.device === '' || owner.device !== revoked.device);
