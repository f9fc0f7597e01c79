import type { ProbeResult } from '../../host/probe.ts';
import { isTime } from '../../kit/clock.ts';
import { asObject, type JsonObject } from '../../kit/json.ts';
import { sealText } from '../../mirror/seal-status.ts';
import { minuteOf } from '../clock-problem.ts';
import { type Check, ok, warn } from './check.ts';

/** Seconds for which the link may be down without a warning, since either side may only be restarting. */
const GRACE_SECONDS = 300;
const ID = 'relay-mirror';
const MAILBOX = 'relay-mailbox';

/**
 * From `GET /relay/mirror`: the state of the link to the other side (contract 12 §1). Empty without a mirror. `now` is epoch
 * milliseconds.
 */
export function mirrorChecks(answer: ProbeResult, now: number): Check[] {
  const mirror = asObject(answer.json) ?? {};
  if (!answer.ok || mirror.enabled !== true) return [];
  return [linkCheck(mirror, now), ...mailboxChecks(mirror)];
}

/** Reports a mailbox that the edge can read (contract 12 §4). Empty while no device uses the mailbox. */
function mailboxChecks({ mailbox }: JsonObject): Check[] {
  const text = sealText(mailbox);
  const { sealed, reason } = asObject(mailbox) ?? {};
  if (text === undefined || reason === 'no_device') return [];
  if (sealed === true) return [ok(MAILBOX, 'the mailbox at the edge is sealed')];
  const next = 'Its operator can read what waits there. Update the program of these devices, or revoke them.';
  return [warn(MAILBOX, `the mailbox at the edge is ${text}`, next)];
}

function linkCheck(mirror: JsonObject, now: number): Check {
  const { url, link, since, waiting, uploads, error } = mirror;
  const isHome = typeof url === 'string';
  const out = asObject(waiting)?.out;
  const count = typeof out === 'number' ? out : 0;
  const wait = count === 0 ? '' : `, ${count} ${count === 1 ? 'change waits' : 'changes wait'}`;
  const there = isHome ? `the edge ${url}` : 'home';
  const failure = asObject(uploads)?.error;
  if (link === 'up' && typeof failure === 'string') {
    const what = `an upload could not be taken over from the edge: ${failure.slice(0, 200)}`;
    return warn(ID, what, 'The edge keeps it. See how many wait with: svc relay mirror status');
  }
  if (link === 'up') return ok(ID, `linked with ${there}${count === 0 ? ', in step' : wait}`);
  const at = isTime(since, 1000) ? since : now / 1000;
  const summary = `${isHome ? `not linked with ${there}` : 'home is off'} since ${minuteOf(at)}${wait}`;
  if (now / 1000 - at < GRACE_SECONDS) return ok(ID, summary);
  if (!isHome)
    return warn(ID, summary, 'Start the relay at home, or end the mirror there with: svc relay mirror disable');
  const reason = typeof error === 'string' ? ` (${error.slice(0, 200)})` : '';
  return warn(ID, `${summary}${reason}`, 'See the link with: svc relay mirror status');
}
