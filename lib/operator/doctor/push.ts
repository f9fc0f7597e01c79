import type { ProbeResult } from '../../host/probe.ts';
import { asObject } from '../../kit/json.ts';
import { type Check, notKnown, ok, outcome, warn } from './check.ts';

const CONTACT =
  'Set RELAY_PUSH_CONTACT of the relay to an address of yours, such as mailto:me@example.com, and restart it.';

/**
 * From `GET /push/status`: whether messages reach devices that nobody is watching (contract 09 §6). Every service of a
 * subscription must have accepted the last call; a service that was never called does not count yet. `now` is epoch
 * milliseconds.
 */
export function pushCheck(answer: ProbeResult, now: number): Check {
  const id = 'relay-push';
  const { subscriptions: count, contact, services } = asObject(answer.json) ?? {};
  if (!answer.ok || typeof count !== 'number' || !Array.isArray(services)) {
    return notKnown(id, `the relay does not say: ${outcome(answer)}`);
  }
  if (count === 0) return ok(id, 'no device asks to be called to messages');
  const subscribed = `${count} ${count === 1 ? 'device asks' : 'devices ask'} to be called to messages`;
  const rows = services.map((item) => asObject(item) ?? {});
  const failed = rows.find(({ result }) => result === 'refused' || result === 'later');
  if (failed) {
    const { host, at, status, error } = failed;
    const answered = typeof status === 'number' ? `answered ${status}` : `gave no answer (${String(error)})`;
    return warn(
      id,
      `${subscribed}; ${String(host)} ${answered} ${agoText(now - Number(at))}`,
      adviceFor(status, contact === null, String(host)),
    );
  }
  if (contact === null) {
    return warn(id, `${subscribed}, and push services are told no address of yours: some refuse that`, CONTACT);
  }
  if (rows.length === 0) {
    return {
      ...notKnown(id, `${subscribed}, and none was called yet`),
      next: 'Try it with: svc phone send "Can you read this?"',
    };
  }
  return ok(id, `${subscribed}; ${String(rows[0]?.host)} took the last call ${agoText(now - Number(rows[0]?.at))}`);
}

function adviceFor(status: unknown, hasNoContact: boolean, host: string): string {
  if (typeof status !== 'number') return `See whether this machine reaches it: curl -I https://${host}/`;
  if (status === 429 || status >= 500) return 'The relay calls it again by itself. Look again in ten minutes.';
  return hasNoContact ? CONTACT : 'Turn notifications off and on again in the app on the device.';
}

/** Milliseconds as `12 min ago`. */
function agoText(milliseconds: number): string {
  const minutes = Math.max(0, Math.round(milliseconds / 60_000));
  if (minutes < 60) return `${minutes} min ago`;
  return minutes < 2880 ? `${Math.round(minutes / 60)} h ago` : `${Math.round(minutes / 1440)} d ago`;
}
