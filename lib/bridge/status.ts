import { isObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { Device } from './registry.ts';

const secondsSince = (time: number, now: number): number => Math.max(0, Math.floor((now - time) / 1000));

/** What the phone said of itself, with its name and id where it left them out. */
function groupsOf({ status, id, name }: Device): Payload {
  const device = isObject(status.device) ? status.device : {};
  return { ...status, device: { ...device, name: device.name ?? name, device_id: device.device_id ?? id } };
}

const common = (device: Device): Payload => ({
  device_id: device.id,
  device_name: device.name,
  aliases: device.aliases,
  session_token_prefix: device.link.session.prefix,
  client_surface: device.surface,
  device_form_factor: device.formFactor,
});

/** A connected device as the operator sees it: the relay's own fields win over the phone's (contract 03 §6). */
export const statusOf = (device: Device, active: string | null, now: number): Payload => ({
  ...groupsOf(device),
  phone_connected: true,
  connected: true,
  active: device.id === active,
  last_seen_seconds_ago: secondsSince(device.lastSeenAt, now),
  ...common(device),
});

/** A device that is not connected any more. */
export const goneStatus = (device: Device, now: number): Payload => ({
  ...groupsOf(device),
  phone_connected: false,
  connected: false,
  active: false,
  last_seen_seconds_ago: secondsSince(device.lastSeenAt, now),
  ...common(device),
});
