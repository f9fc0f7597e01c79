import { firstString } from '../dispatch/first-string.ts';
import { isDeviceId, UNNAMED } from '../sessions/device.ts';
import type { Device as SessionDevice } from '../sessions/session.ts';
import type { Payload } from '../socket/envelope.ts';

/**
 * A desktop's id: from its session, else from its first status, else from its socket (contract 07 §2.2). `mayClaim`
 * decides whether an id that only the status gives may be used: one that belongs to another desktop may not.
 */
export function idOf(
  device: SessionDevice,
  status: Payload,
  socketId: string,
  mayClaim: (id: string) => boolean,
): string {
  if (isDeviceId(device.id)) return device.id;
  const claimed = firstString(status, ['device_id']);
  return claimed !== undefined && isDeviceId(claimed) && mayClaim(claimed) ? claimed : `ws-${socketId}`;
}

/** A desktop's name: from its session, else from its status, else its id. */
export function nameOf(device: SessionDevice, status: Payload, id: string): string {
  const own = device.name === '' || device.name === UNNAMED ? undefined : device.name;
  return own ?? firstString(status, ['device_name']) ?? firstString(status, ['host']) ?? id;
}

/** Letters and digits of any script, in lower case. */
const normalise = (text: string): string => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');

/** True if a selector matches one of these names; one without letters and digits has to be equal (contract 07 §2.3). */
export function isNamed(names: readonly string[], selector: string): boolean {
  const lower = selector.toLowerCase();
  const plain = normalise(selector);
  return names.some((name) => name.toLowerCase() === lower || (plain !== '' && normalise(name) === plain));
}
