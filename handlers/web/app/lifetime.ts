import type { I18n } from '../shared/i18n.ts';
import type { App } from './context.ts';
import { AS_HOST_SAYS, CHOICES } from './settings.ts';

const DAY = 86_400;
/** Default lifetime of a session whose host has set none (contract 01 §6). */
const HOST_DEFAULT = 30 * DAY;
/** Preselected over a plain connection, if neither the host nor a person has chosen (specification 8). */
const PLAIN_DEFAULT = 7 * DAY;
/** Seconds that a pairing may take to arrive here. */
const TOLERANCE = 120;

const NAMES: Readonly<Record<number, string>> = {
  [AS_HOST_SAYS]: 'as the host decides',
  [DAY]: '1 day',
  [7 * DAY]: '7 days',
  [30 * DAY]: '30 days',
  [90 * DAY]: '90 days',
  [365 * DAY]: '1 year',
  0: 'no end',
};

/** The lifetimes of a session with their names. */
export const lifetimeOptions = (t: I18n['t']) =>
  CHOICES.pair_ttl_seconds.map((seconds) => [seconds, t(NAMES[seconds] ?? '')] as const);

/** The lifetime in seconds to which a new session should be limited; null to leave it unchanged. Times are epoch seconds. */
export function limitFor(
  { pair_ttl_seconds: chosen, insecure_reason: reason }: App['settings']['values'],
  { expiresAt, now, isPlain }: { expiresAt: number | null; now: number; isPlain: boolean },
): number | null {
  const isHostsDefault = expiresAt !== null && Math.abs(expiresAt - now - HOST_DEFAULT) < TOLERANCE;
  const isUnprotected = isPlain && reason.value !== 'tailscale_vpn';
  const seconds = chosen.value !== AS_HOST_SAYS ? chosen.value : isUnprotected && isHostsDefault ? PLAIN_DEFAULT : 0;
  if (seconds <= 0) return null;
  return expiresAt === null || now + seconds < expiresAt - TOLERANCE ? seconds : null;
}

/** Ends the session of this browser earlier. Only the host may end it later. @throws ApiError */
export async function limitSession({ api, session }: Pick<App, 'api' | 'session'>, seconds: number): Promise<void> {
  const prefix = session.token()?.slice(0, 8);
  await api.call(`sessions/${prefix}`, { method: 'PATCH', body: { ttl_seconds: seconds } });
  // The relay reports the new end when it connects.
  session.reconnect();
}
