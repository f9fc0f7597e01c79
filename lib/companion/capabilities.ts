import type { SafetySettings } from './types.ts';

/** Granted always or never (contract 03 §8.2). */
export const PERMANENT = [
  'device_info',
  'contacts_read',
  'location_read',
  'clipboard_read',
  'clipboard_write',
  'media_control',
  'communications',
  'outbound_sharing',
] as const;

/** Granted as a lease with an absolute end, or without one. */
export const TIMED = ['screen_inspection', 'screen_control'] as const;

export type Permanent = (typeof PERMANENT)[number];
export type Timed = (typeof TIMED)[number];
export type Capability = Permanent | Timed;

export const isTimed = (capability: string): capability is Timed => (TIMED as readonly string[]).includes(capability);

const own = (settings: SafetySettings, id: string): unknown =>
  Object.hasOwn(settings.capabilities, id) ? settings.capabilities[id] : undefined;

/** Whether the stored grants make sense at all: one bad entry denies everything (contract 03 §8.2). */
export function isWellFormed(settings: SafetySettings): boolean {
  if (typeof settings.capabilities !== 'object' || settings.capabilities === null) return false;
  return (
    PERMANENT.every((id) => own(settings, id) === undefined || own(settings, id) === null) &&
    TIMED.every((id) => {
      const until = own(settings, id);
      return until === undefined || until === null || (typeof until === 'number' && Number.isFinite(until));
    })
  );
}

/** A lease allows while its end is in the future; null never ends. */
export function grantState(settings: SafetySettings, id: Capability, now: number): 'live' | 'expired' | 'absent' {
  const until = own(settings, id);
  if (until === undefined) return 'absent';
  return until === null || (until as number) > now ? 'live' : 'expired';
}

/** The timed leases with an end, whether past or not. */
export function finiteLeases(settings: SafetySettings): { id: Timed; until: number }[] {
  if (settings.policy !== 'bound' || !isWellFormed(settings)) return [];
  return TIMED.flatMap((id) => {
    const until = own(settings, id);
    return typeof until === 'number' ? [{ id, until }] : [];
  });
}
