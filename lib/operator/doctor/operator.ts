import type { Host } from '../../host/index.ts';
import type { ProbeResult } from '../../host/probe.ts';
import { isMapping } from '../../kit/yaml.ts';
import { type Check, MORE_TIME, notKnown, ok, warn } from './check.ts';

/** Settings that decide who operates the relay, as far as this command knows them (contract 01 §1.3 rule 6). */
export interface OperatorSettings {
  /** `RELAY_REQUIRE_OPERATOR_KEY`. */
  requireKey: boolean;
  /** `RELAY_OPERATOR_UIDS`. */
  uids: readonly number[];
  /** Whether this user can read the operator key. */
  hasKey: boolean;
  /** Whether `DESKTOP_RELAY_TOKEN` is set. */
  hasDesktopToken: boolean;
}

export interface OperatorFacts extends OperatorSettings {
  /** The user that runs this command. */
  own: number | null;
  /** The users that listen on the relay's port. */
  listeners: number[] | 'untold';
}

export const readOperator = async (host: Host, port: number, settings: OperatorSettings): Promise<OperatorFacts> => ({
  ...settings,
  own: host.users.own,
  listeners: await host.users.ofListeners(port),
});

const REQUIRE =
  'Set RELAY_REQUIRE_OPERATOR_KEY=1 and restart the relay. The commands of svc send the key by themselves.';

const ID = 'relay-operator';

/** Verdict when the users were not found in time. */
export const unknownOperator = (reason: string): Check =>
  warn(ID, `who may operate the relay is not known: ${reason}`, MORE_TIME);

/** Which rule tells the operator from other callers on this machine, and whether it admits this user. */
export function operatorCheck(facts: OperatorFacts, info: ProbeResult): Check {
  const { own, listeners, uids, requireKey, hasKey } = facts;
  if (info.status === 401 || info.status === 403) {
    const relayUsers = listeners === 'untold' ? [] : listeners.filter((user) => user !== own);
    const who = relayUsers.length > 0 ? `user ${relayUsers.join(' or ')}` : 'the user that runs the relay';
    return warn(
      ID,
      `the relay refuses this command: ${errorOf(info) || `HTTP ${info.status}`}`,
      `Run this as ${who}, or name this user in RELAY_OPERATOR_UIDS of the relay.`,
    );
  }
  if (requireKey) {
    return hasKey || !info.ok
      ? ok(ID, 'every caller needs the operator key')
      : warn(ID, 'the operator key is required here, but the running relay does not ask for it', 'Restart the relay.');
  }
  if (listeners === 'untold') {
    return warn(ID, 'this system does not tell which user calls: any user of it can operate the relay', REQUIRE);
  }
  const runner = listeners.length > 0 ? listeners : [own ?? 'unknown'];
  const users = [...new Set([...runner, ...uids])].join(', ');
  return ok(ID, `only user ${users} may operate the relay; any other needs the operator key`);
}

const errorOf = ({ json }: ProbeResult): string =>
  isMapping(json) && typeof json.error === 'string' ? json.error.slice(0, 300) : '';

/**
 * Whether the relay tells tools of this machine what to send: the refusals of a call to `/sessions` and to `/desktop`
 * without a bearer name it (contract 01 §6.3, 07 §2.2).
 */
export function toolsCheck(
  { hasDesktopToken, requireKey }: OperatorSettings,
  { info, sessions, desktop }: { info: ProbeResult; sessions: ProbeResult; desktop: ProbeResult },
): Check {
  const id = 'relay-host-tools';
  const token = `desktop tools need DESKTOP_RELAY_TOKEN, which is ${hasDesktopToken ? '' : 'not '}set here`;
  if (!info.ok) return notKnown(id, `the relay does not admit this command; ${token}`);
  const isNamed = errorOf(sessions).includes('X-Svc-Operator') && errorOf(desktop).includes('DESKTOP_RELAY_TOKEN');
  const sent = requireKey ? 'X-Svc-Operator: 1 and the operator key' : 'X-Svc-Operator: 1';
  return isNamed
    ? ok(id, `other tools of this machine are let in with ${sent}; ${token}`)
    : warn(id, 'the relay does not say what tools of this machine have to send', 'Restart the relay: it may be older.');
}
