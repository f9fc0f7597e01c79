import type { SafetySettings } from '../lib/companion/safety-settings.ts';
import { isTimed, PERMANENT, TIMED } from '../lib/companion/safety-settings.ts';
import { RelayError } from '../lib/errors.ts';
import { parseDuration } from '../lib/pairing/duration.ts';

export type Capabilities = SafetySettings['capabilities'];

/** Every capability, in the order of the keys that switch them: timed ones first, for they are what one asks for. */
export const CAPABILITIES: readonly string[] = [...TIMED, ...PERMANENT];

const invalid = (message: string) => new RelayError('invalid', message);

/** Everything, without an end. */
export const allGrants = (): Capabilities => Object.fromEntries(CAPABILITIES.map((id) => [id, null]));

/**
 * Grants as `--grant` writes them: `all`, or ids, the timed ones with a lease: `screen_control=30m,device_info`.
 * @throws RelayError `invalid` naming what is wrong.
 */
export function parseCapabilities(text: string, now: number): Capabilities {
  if (text.trim().toLowerCase() === 'all') return allGrants();
  const granted: Capabilities = {};
  for (const item of text.split(',')) {
    const [name = '', duration] = item.trim().split('=', 2);
    const id = name.trim().toLowerCase();
    if (!CAPABILITIES.includes(id)) throw invalid(`'${id}' is none of all, ${CAPABILITIES.join(', ')}`);
    if (Object.hasOwn(granted, id)) throw invalid(`${id} is named more than once`);
    if (duration !== undefined && !isTimed(id)) throw invalid(`${id} has no end: leave the duration out`);
    const seconds = duration === undefined ? 0 : parseDuration(duration);
    granted[id] = seconds === 0 ? null : now + seconds * 1000;
  }
  return granted;
}

/** The next setting of one capability: off, (a lease for timed ones,) on without an end, off. */
export function cycle(settings: SafetySettings, id: string, now: number): Capabilities {
  const { [id]: until, ...others } = settings.capabilities;
  const live = until === null || (until !== undefined && until > now);
  if (!live) return { ...others, [id]: isTimed(id) ? now + settings.autoDisableMinutes * 60_000 : null };
  return until === null ? others : { ...others, [id]: null };
}

/** A capability's state in words. */
export function grantText({ capabilities }: SafetySettings, id: string, now: number): string {
  const until = Object.hasOwn(capabilities, id) ? capabilities[id] : undefined;
  if (until === undefined) return 'off';
  if (until === null) return 'on';
  return until > now ? `on for ${Math.ceil((until - now) / 60_000)} min` : 'expired';
}

/** How many capabilities are in force. */
export const liveGrants = (settings: SafetySettings, now: number): number =>
  CAPABILITIES.filter((id) => grantText(settings, id, now).startsWith('on')).length;
