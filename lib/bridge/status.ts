import { isObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { Device, KnownDevice } from './registry.ts';

const secondsSince = (time: number, now: number): number => Math.max(0, Math.floor((now - time) / 1000));

/** The phone's own report, with missing names and ids filled in. */
function groupsOf({ status, id, name }: KnownDevice): Payload {
  const device = isObject(status.device) ? status.device : {};
  return { ...status, device: { ...device, name: device.name ?? name, device_id: device.device_id ?? id } };
}

/** The relay's own fields override the phone's (contract 03 §6). */
const statusWith = (device: KnownDevice, connected: boolean, active: boolean, now: number): Payload => ({
  ...groupsOf(device),
  phone_connected: connected,
  connected,
  active,
  last_seen_seconds_ago: secondsSince(device.lastSeenAt, now),
  device_id: device.id,
  device_name: device.name,
  aliases: device.aliases,
  session_token_prefix: device.prefix,
  client_surface: device.surface,
  device_form_factor: device.formFactor,
});

/** A connected device as the operator sees it. */
export const statusOf = (device: Device, isActive: boolean, now: number): Payload =>
  statusWith(device, true, isActive, now);

/** A device that is no longer connected. */
export const departedStatus = (device: KnownDevice, now: number): Payload => statusWith(device, false, false, now);
