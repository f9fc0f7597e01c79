import type { Device } from './session.ts';

/** Name of a device without one. */
export const UNNAMED = 'Unknown device';

const NO_DEVICE = new Set(['', 'unknown', 'none', 'null']);

/** True if an id identifies a device; some clients send a word for "none". */
export const isDeviceId = (id: string): boolean => !NO_DEVICE.has(id.toLowerCase());

/**
 * A known device with its new description, whose values override if they are not empty. An id never changes once set: every
 * device can read the ids of the others from `GET /sessions`, and a device that claimed one would get that device's commands
 * (contract 01 §3.4).
 */
export function mergeDevice(old: Device, presented: Device): Device {
  const pick = <T extends string>(fresh: T, previous: T, nothing: string): T =>
    fresh !== '' && fresh !== 'unknown' && fresh !== nothing ? fresh : previous;
  const origin = presented.origin ?? old.origin;
  return {
    name: pick(presented.name, old.name, UNNAMED),
    id: isDeviceId(old.id) ? old.id : presented.id,
    model: pick(presented.model, old.model, ''),
    platform: pick(presented.platform, old.platform, ''),
    surface: pick(presented.surface, old.surface, 'unknown'),
    formFactor: pick(presented.formFactor, old.formFactor, 'unknown'),
    ...(origin !== undefined && { origin }),
  };
}

/** Compares every field. Runs at every connect. Both devices have exactly the fields of `Device`. */
export const isSameDevice = (a: Device, b: Device): boolean =>
  (Object.keys(a) as (keyof Device)[]).every((field) => a[field] === b[field]);
