import { isTimed, PERMANENT, type SafetySettings, TIMED } from '../../lib/companion/safety-settings.ts';
import { RelayError } from '../../lib/errors.ts';
import { parseDuration } from '../../lib/pairing/duration.ts';

export type Capabilities = SafetySettings['capabilities'];

/** All capabilities, in the order of the keys that switch them: the timed ones first, because they are used most. */
export const CAPABILITIES: readonly string[] = [...TIMED, ...PERMANENT];

const invalid = (message: string) => new RelayError('invalid', message);

/** Every capability, without an end. */
export const allGrants = (): Capabilities => Object.fromEntries(CAPABILITIES.map((id) => [id, null]));

/**
 * Parses the value of `--grant`: `all`, or a list of ids, timed ones with an optional lease:
 * `screen_control=30m,device_info`.
 * @throws RelayError `invalid` naming the error.
 */
export function parseCapabilities(text: string, now: number): Capabilities {
  if (text.trim().toLowerCase() === 'all') return allGrants();
  const granted: Capabilities = {};
  for (const item of text.split(',')) {
    const [name = '', duration] = item.trim().split('=', 2);
    const id = name.trim().toLowerCase();
    if (!CAPABILITIES.includes(id)) throw invalid(`'${id}' is not one of all, ${CAPABILITIES.join(', ')}`);
    if (Object.hasOwn(granted, id)) throw invalid(`${id} is given more than once`);
    if (duration !== undefined && !isTimed(id)) throw invalid(`${id} takes no duration`);
    const seconds = duration === undefined ? 0 : parseDuration(duration);
    granted[id] = seconds === 0 ? null : now + seconds * 1000;
  }
  return granted;
}

/** The grants after one capability was switched to its next state: off, a lease (if timed), on without an end, off. */
export function cycleGrant(settings: SafetySettings, id: string, now: number): Capabilities {
  const { [id]: until, ...others } = settings.capabilities;
  const isLive = until === null || (until !== undefined && until > now);
  if (!isLive) return { ...others, [id]: isTimed(id) ? now + settings.autoDisableMinutes * 60_000 : null };
  return until === null ? others : { ...others, [id]: null };
}

/** The state of one grant: `off`, `on`, `on for 30 min` or `expired`. */
export function grantText({ capabilities }: SafetySettings, id: string, now: number): string {
  const until = Object.hasOwn(capabilities, id) ? capabilities[id] : undefined;
  if (until === undefined) return 'off';
  if (until === null) return 'on';
  return until > now ? `on for ${Math.ceil((until - now) / 60_000)} min` : 'expired';
}

/** The number of grants in force. */
export const liveGrants = (settings: SafetySettings, now: number): number =>
  CAPABILITIES.filter((id) => grantText(settings, id, now).startsWith('on')).length;

/** The expiry of a session or channel grant, in epoch seconds, as text. */
export const expiryText = (expiry: number | null): string =>
  expiry === null ? 'never expires' : `until ${timeText(expiry)}`;

/** A time in epoch seconds, to the minute. */
export const timeText = (at: number): string => new Date(at * 1000).toISOString().replace(/:\d\d\.\d+Z$/, 'Z');

/** The relay's grant for the bridge, as text. */
export const bridgeText = ({ bridge }: Grants): string =>
  bridge === undefined ? `not granted: ${PAIR_AGAIN}` : expiryText(bridge);

/** A notice of the relay in the words of this phone, with the next step. */
export function noticeText(text: string, code: string | undefined, grants: Grants = {}): string {
  if (code === 'home_offline') return `${text}: ${WAITING}`;
  if (!text.startsWith('Bridge grant expired')) return text;
  return grants.bridge === undefined
    ? `this phone is paired without the bridge grant: ${PAIR_AGAIN}`
    : `${text}: extend it at the relay with: svc devices extend`;
}

type Grants = Readonly<Record<string, number | null>>;

const PAIR_AGAIN = 'to let agents control this phone, pair it again with: svc pair';
const WAITING = 'until it is back, messages wait at the edge and agents cannot control this phone';
