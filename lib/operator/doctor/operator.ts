import type { OperatorState } from '../../access/local-operator.ts';
import type { Host } from '../../host/index.ts';
import type { ProbeResult } from '../../host/probe.ts';
import type { LocalProxy, PortListener } from '../../host/users.ts';
import { defaultPort, isLoopbackName, urlHost } from '../../kit/addresses.ts';
import { isMapping } from '../../kit/yaml.ts';
import { type Check, MORE_TIME, notKnown, ok, warn } from './check.ts';

/** Settings that decide who the operator is, as far as this command knows them (contract 01 §1.3 rule 6). */
export interface OperatorSettings {
  /** `RELAY_REQUIRE_OPERATOR_KEY`; undefined if the relay decides. */
  requireKey: boolean | undefined;
  /** `RELAY_OPERATOR_UIDS`. */
  uids: readonly number[];
  /** True if this user can read the operator key. */
  hasKey: boolean;
  /** True if `DESKTOP_RELAY_TOKEN` is set. */
  hasDesktopToken: boolean;
}

/** A local server that gets credentials of the relay, and the accounts that listen on its port. */
export interface ServerFacts {
  /** `the API server`. */
  name: string;
  listeners: readonly PortListener[];
}

export interface OperatorFacts extends OperatorSettings {
  /** The user that runs this command. */
  own: number | null;
  /** The users that listen on the relay's port. */
  listeners: number[] | 'untold';
  /** Each listener on it; absent if the system does not report listeners. */
  portListeners?: readonly PortListener[] | null;
  /** The servers behind the relay that are on this machine. */
  servers?: readonly ServerFacts[];
  /** Programs of the relay's user that call it and listen on other ports, apart from those servers. */
  proxies?: readonly LocalProxy[];
  /** Processes of the relay and of those servers. */
  known?: readonly number[];
}

/** Reads the accounts that listen on the relay's port and on those of the servers behind it, given by name and URL. */
export async function readOperator(
  host: Pick<Host, 'users'>,
  port: number,
  settings: OperatorSettings,
  { urls, process }: { urls: readonly (readonly [name: string, url: string])[]; process(): Promise<number | null> },
): Promise<OperatorFacts> {
  const { users } = host;
  const local = urls.filter(([, url]) => URL.canParse(url) && isLoopbackName(new URL(url).hostname));
  const [listeners, portListeners, pid, ...servers] = await Promise.all([
    users.ofListeners(port),
    users.listeners(port),
    process(),
    ...local.map(async ([name, url]) => {
      const { protocol, port: given } = new URL(url);
      return { name, listeners: (await users.listeners(Number(given) || defaultPort(protocol.slice(0, -1)))) ?? [] };
    }),
  ]);
  const known = [pid, ...(portListeners ?? []), ...servers.flatMap(({ listeners: found }) => found)].flatMap((each) => {
    const known = typeof each === 'number' ? each : each?.pid;
    return known === undefined ? [] : [known];
  });
  const owner = portListeners?.[0]?.uid;
  const proxies = owner === undefined ? [] : await users.proxies(port, owner, known);
  return { ...settings, own: users.own, listeners, portListeners, servers, proxies, known };
}

const REQUIRE =
  'Set RELAY_REQUIRE_OPERATOR_KEY=1 and restart the relay. The commands of svc send the key by themselves.';

const ID = 'relay-operator';
const ROOT = 0;

/** Verdict when the users were not found in time. */
export const unknownOperator = (reason: string): Check =>
  warn(ID, `who may operate the relay is not known: ${reason}`, MORE_TIME);

/** Checks by which rule the operator is told from other callers on this machine, and whether it admits this user. */
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
  const running = runningOperator(info);
  if (running?.keyRequired ?? (requireKey && (hasKey || !info.ok))) {
    const why = requireKey ? '' : ': a URL under which the relay is published leads to a proxy on this machine';
    return ok(ID, `every caller needs the operator key${why}`);
  }
  if (requireKey) {
    return warn(
      ID,
      'the operator key is required here, but the running relay does not ask for it',
      'Restart the relay.',
    );
  }
  if (listeners === 'untold') {
    return warn(ID, 'this system does not tell which user calls: any user of it can operate the relay', REQUIRE);
  }
  const { portListeners, servers = [], proxies = [], known = [] } = facts;
  const trusted: unknown[] = [own, ROOT, ...uids];
  for (const { name, listeners: found } of servers) {
    const foreign = found.find(({ uid }) => !trusted.includes(uid) && !listeners.includes(uid));
    if (!foreign) continue;
    return warn(
      ID,
      `${name} is served by ${addressesOf([foreign])}, so the relay sends it no credential`,
      `Stop that program if it is not yours; else set RELAY_OPERATOR_UIDS=${[...uids, foreign.uid].join(',')} for the relay.`,
    );
  }
  const seen = running?.forwarders.filter(({ pid }) => !known.includes(pid)) ?? [];
  const [proxy] = [...proxies, ...seen];
  if (proxy) {
    const { program, pid, ports } = proxy;
    return warn(
      ID,
      `${program} (process ${pid}, listens on ${ports.join(', ')}) calls the relay as the relay's own user: ` +
        'if it forwards for others, each of them is the operator',
      REQUIRE,
    );
  }
  const runner = listeners.length > 0 ? listeners : [own ?? 'unknown'];
  const users = [...new Set([...runner, ...uids])].join(', ');
  const where = portListeners && portListeners.length > 0 ? `; it listens on ${addressesOf(portListeners)}` : '';
  return ok(ID, `only user ${users} may operate the relay; any other needs the operator key${where}`);
}

/** The operator rule as reported by the running relay; undefined for an older relay, or without an answer. */
function runningOperator({ ok: isAnswer, json }: ProbeResult): OperatorState | undefined {
  if (!isAnswer || !isMapping(json) || !isMapping(json.operator)) return undefined;
  const { key_required: keyRequired, forwarders } = json.operator;
  return { keyRequired: keyRequired === true, forwarders: Array.isArray(forwarders) ? forwarders.filter(isProxy) : [] };
}

const isProxy = (value: unknown): value is LocalProxy =>
  isMapping(value) &&
  typeof value.pid === 'number' &&
  typeof value.program === 'string' &&
  Array.isArray(value.ports) &&
  value.ports.every((port) => typeof port === 'number');

/** `127.0.0.1 (node svc.js, user 1000) and [::1] (...)`. */
const addressesOf = (listeners: readonly PortListener[]): string =>
  listeners
    .map(
      ({ address, uid, program }) => `${urlHost(address)} (${program === undefined ? '' : `${program}, `}user ${uid})`,
    )
    .join(' and ');

const errorOf = ({ json }: ProbeResult): string =>
  isMapping(json) && typeof json.error === 'string' ? json.error.slice(0, 300) : '';

/**
 * Checks that the relay's refusals guide local tools: a call to `/sessions` and to `/desktop` without a bearer has to name
 * the required header (contract 01 §6.3, 07 §2.2).
 */
export function toolsCheck(
  { hasDesktopToken, requireKey }: OperatorSettings,
  { info, sessions, desktop }: { info: ProbeResult; sessions: ProbeResult; desktop: ProbeResult },
): Check {
  const id = 'relay-host-tools';
  const token = `desktop tools need DESKTOP_RELAY_TOKEN, which is ${hasDesktopToken ? '' : 'not '}set here`;
  if (!info.ok) return notKnown(id, `the relay does not admit this command; ${token}`);
  const isRequired = runningOperator(info)?.keyRequired ?? requireKey;
  const isNamed = errorOf(sessions).includes('X-Svc-Operator') && errorOf(desktop).includes('DESKTOP_RELAY_TOKEN');
  const sent = isRequired ? 'X-Svc-Operator: 1 and the operator key' : 'X-Svc-Operator: 1';
  return isNamed
    ? ok(id, `other tools of this machine are let in with ${sent}; ${token}`)
    : warn(id, 'the relay does not say what tools of this machine have to send', 'Restart the relay: it may be older.');
}
