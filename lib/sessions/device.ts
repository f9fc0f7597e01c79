import type { Device } from './session.ts';

/** Stands for the name of a device that gave none. */
export const UNNAMED = 'Unknown device';

const NO_DEVICE = new Set(['', 'unknown', 'none', 'null']);

/** True if an id identifies a device: some clients send a word for "none". */
export const isDeviceId = (id: string): boolean => !NO_DEVICE.has(id.toLowerCase());

/**
 * A known device after it has described itself again: new values win where they say anything. Its id never changes once
 * it has one: every device reads the ids of the others from `GET /sessions`, and a device that took one would get that
 * device's commands (contract 01 §3.4).
 */
export function mergeDevice(old: Device, presented: Device): Device {
  const pick = <T extends string>(fresh: T, kept: T, nothing: string): T =>
    fresh !== '' && fresh !== 'unknown' && fresh !== nothing ? fresh : kept;
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

/** Compares every field. Runs at every connect; both devices have the fields of `Device` and no others. */
export const isSameDevice = (a: Device, b: Device): boolean =>
  (Object.keys(a) as (keyof Device)[]).every((field) => a[field] === b[field]);
