import { isObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { KnownDevice } from './registry.ts';

/** A device as the operator sees it: the relay's own fields override those of its report (contract 03 §6). */
export function statusOf(known: KnownDevice, state: { connected: boolean; active: boolean }, now: number): Payload {
  const { status, id, name } = known;
  const device = isObject(status.device) ? status.device : {};
  return {
    ...status,
    device: { ...device, name: device.name ?? name, device_id: device.device_id ?? id },
    phone_connected: state.connected,
    ...state,
    last_seen_seconds_ago: Math.max(0, Math.floor((now - known.lastSeenAt) / 1000)),
    device_id: id,
    device_name: name,
    aliases: known.aliases,
    session_token_prefix: known.prefix,
    client_surface: known.surface,
    device_form_factor: known.formFactor,
  };
}
