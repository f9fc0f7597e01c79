import { base32 } from 'rfc4648';
import { bytesOfId, ID_BYTES, idOfBytes } from '../ids.ts';

/** 16 bytes in base32. */
const LABEL = /^[a-z2-7]{26}$/;

/**
 * The label of a host's own name at the edge (contract 08 §8), since host names ignore case and IDs do not.
 * @throws Error for a text that is not an ID
 */
export const labelOf = (hostId: string): string => base32.stringify(bytesOfId(hostId), { pad: false }).toLowerCase();

/** The host ID of a label; null for any other text. */
export function hostIdOfLabel(label: string): string | null {
  if (!LABEL.test(label)) return null;
  try {
    const bytes = base32.parse(label.toUpperCase(), { loose: true });
    const hostId = bytes.length === ID_BYTES ? idOfBytes(bytes) : null;
    // One name per host: the last character has spare bits.
    return hostId !== null && labelOf(hostId) === label ? hostId : null;
  } catch {
    return null;
  }
}

/** The host whose own name this is, by its first label; null for a name that hosts share. */
export const hostIdOfName = (hostname: string): string | null => hostIdOfLabel(hostname.split('.')[0] ?? '');
