import { setAside } from './response.ts';
import type { Step } from './step.ts';
import { forgetUtterances } from './turn.ts';

/** The connection to the provider, which may be lost while the session continues (contract 06 §6.9). Milliseconds. */

/** Waits before each attempt. */
const WAITS = [0, 500, 1000, 2000, 4000];
const MAX_GAP = 20_000;
/** A connection that lasted this long does not count towards a series of failures. */
const STEADY = 60_000;
/** The session is renewed this long before the provider ends it. */
const AHEAD = 60_000;
const MAX_EXPIRY = 24 * 60 * 60_000;

export type Reason = 'provider_disconnected' | 'session_expired' | 'session_limit' | 'idle';

/** The connection was lost, or given up for a new one: dials again, and keeps pending work. */
export function reconnect(step: Step, reason: Reason): void {
  const { link } = step.state;
  if (step.at - link.upAt >= STEADY) link.tries = 0;
  link.isRenewalDue = false;
  link.lostAt = step.at;
  step.clearTimer('renew');
  step.emit({ type: 'voice.provider.reconnecting', reason });
  setAside(step);
  forgetUtterances(step);
  step.setTimer('gap', MAX_GAP);
  dialNext(step);
}

/** The connection was lost while idle: dials again on demand. */
export function sleep(step: Step): void {
  const { link } = step.state;
  step.mark('voice.realtime_agent.provider_asleep', { message: link.message });
  setAside(step);
  step.clearTimer('renew');
  link.isRenewalDue = false;
  link.phase = 'asleep';
}

/** Schedules the next attempt. If none is left, `gap` fires at once. */
function dialNext(step: Step): void {
  const { link } = step.state;
  const wait = WAITS[link.tries++];
  link.phase = 'waiting';
  if (wait === 0) dialDue(step);
  else step.setTimer(wait === undefined ? 'gap' : 'dial', wait ?? 0);
}

export function dialDue(step: Step): void {
  step.state.link.phase = 'dialling';
  step.do({ type: 'dial' });
}

export function dialled(step: Step): void {
  const { link, turn } = step.state;
  if (link.phase !== 'dialling') return;
  link.phase = 'up';
  link.upAt = step.at;
  step.clearTimer('gap');
  step.emit({ type: 'voice.provider.reconnected', gap_ms: Math.round(step.at - link.lostAt) });
  if (turn.awaiting > 0) step.setTimer('transcript', step.config.transcriptWait);
}

export function dialFailed(step: Step, message: string): void {
  const { link } = step.state;
  if (link.phase !== 'dialling') return;
  link.message = message;
  step.mark('voice.realtime_agent.provider_dial_failed', { message });
  dialNext(step);
}

/** The provider has announced the end of its session. An end that is too near, by the clocks, is ignored. */
export function planRenewal(step: Step, expiresIn: number): void {
  const wait = Math.min(expiresIn, MAX_EXPIRY) - AHEAD;
  if (wait > 0) step.setTimer('renew', wait);
}

export function endLink(step: Step): void {
  for (const name of ['renew', 'gap', 'dial']) step.clearTimer(name);
  step.do({ type: 'hangUp' });
}
