import type { Config } from '../../config.ts';
import type { Host } from '../../host/index.ts';
import type { ProbeResult } from '../../host/probe.ts';
import { splitUrl } from '../../kit/addresses.ts';
import { asObject } from '../../kit/json.ts';
import { DAY } from '../../kit/units.ts';
import { otherRelayAdvice } from '../../reach/connector.ts';
import { type FoundIdentity, findIdentity, identityProblem } from '../../secure-link/identity.ts';
import { namedFiles, readUpstream } from '../../secure-link/settings.ts';
import { type Check, fail, MORE_TIME, ok, outcome, warn } from './check.ts';

/** Days before the end of an identity from which the doctor warns. */
const SOON = 30;

export interface SecureLinkFacts {
  /** Epoch milliseconds. */
  now: number;
  found: FoundIdentity;
  /** `GET /health` of the relay, as its operator. */
  health: ProbeResult;
  /** `GET /api/health` of the dashboard behind Secure Link; null unless that is on this machine. */
  gate: ProbeResult | null;
  /** Pin of the key that the advertised origin serves; null without an answer, undefined if none is advertised. */
  served: string | null | undefined;
}

export interface SecureLinkDoctor {
  config: Config;
  host: Host;
  now: number;
  health: Promise<ProbeResult>;
  probe(base: string, path: string): Promise<ProbeResult>;
  /** Milliseconds. */
  timeout: number;
}

const linkOf = ({ json }: ProbeResult) => asObject(asObject(json)?.secure_link) ?? {};
const proxyOf = ({ json }: ProbeResult) => asObject(asObject(asObject(json)?.secure_proxy)?.proxy) ?? {};

/**
 * Gathers the facts for the checks; undefined if Secure Link is enabled neither here nor, by flags, in the running relay.
 * Read-only; probes the dashboard without credentials.
 */
export async function readSecureLink(deps: SecureLinkDoctor): Promise<SecureLinkFacts | undefined> {
  const { config, host, now, timeout } = deps;
  if (!config.secureLinkEnabled && linkOf(await deps.health).enabled !== true) return undefined;
  const dashboard = readUpstream(config.secureLinkDashboardUrl);
  const served = async () => {
    const origin = splitUrl(String(proxyOf(await deps.health).url ?? ''));
    return origin?.port === undefined ? undefined : host.identities.servedPin(origin.host, origin.port, timeout);
  };
  const [found, health, gate, pin] = await Promise.all([
    findIdentity({ files: namedFiles(config) }, host),
    deps.health,
    dashboard ? deps.probe(dashboard.href.replace(/\/$/, ''), '/api/health') : null,
    served(),
  ]);
  return { now, found, health, gate, served: pin };
}

/** Verdict when the facts came too late. */
export const unknownSecureLink = (reason: string): Check[] => [
  warn('secure-link-listener', `the state of Secure Link is not known: ${reason}`, MORE_TIME),
];

/**
 * The checks of Secure Link, if it is enabled here or in the running relay (contract 08). `dashboardUrl` is the address at
 * which the doctor probes the dashboard.
 */
export function secureLinkChecks(facts: SecureLinkFacts, dashboardUrl: string): Check[] {
  const gate = dashboardCheck(facts);
  const isSame = facts.gate?.url === `${dashboardUrl}/api/health` && facts.gate.status === null;
  return [
    ...[identityCheck(facts), listenerCheck(facts), ...pinCheck(facts)],
    isSame ? { ...gate, cause: 'dashboard-status' } : gate,
    ...reachCheck(facts),
  ];
}

const ROTATE = 'Make a new one with: svc relay secure-link rotate. Then restart the relay and pair every device again.';

function identityCheck({ found, now }: SecureLinkFacts): Check {
  const id = 'secure-link-identity';
  if (found.kind === 'none') return ok(id, 'there is none yet: the relay makes one when it starts');
  if (found.kind === 'unusable') return fail(id, found.reason, ROTATE);
  const { facts, key } = found;
  const problem = identityProblem(facts, null, now);
  if (problem) return fail(id, problem, ROTATE);
  if (key.isLoose) return fail(id, 'other accounts can read the private key', `Run: chmod 600 ${found.files.key}`);
  const names = `the certificate is for ${facts.names || 'no name'}`;
  const summary = `${names}, valid until ${new Date(facts.validTo).toISOString().slice(0, 10)}`;
  return facts.validTo - now < SOON * DAY ? warn(id, summary, ROTATE) : ok(id, summary);
}

function listenerCheck({ health }: SecureLinkFacts): Check {
  const id = 'secure-link-listener';
  if (!health.ok) return warn(id, `the relay does not say: ${outcome(health)}`, 'See relay-loopback.');
  const { status, reason } = linkOf(health);
  if (status === 'available') return ok(id, `serves ${proxyOf(health).url}`);
  if (status === 'disabled') {
    return warn(id, 'it is enabled here, but not in the running relay', 'Restart the relay.');
  }
  return fail(
    id,
    `unavailable${typeof reason === 'string' ? `: ${reason}` : ''}`,
    'See what is blocked with: svc relay secure-link. Then restart the relay.',
  );
}

/** Checks that the served certificate and the files on disk still have the advertised pin. */
function pinCheck({ found, health, served }: SecureLinkFacts): Check[] {
  const id = 'secure-link-pin';
  const { pin_sha256: pin } = proxyOf(health);
  if (served === undefined || typeof pin !== 'string') return [];
  if (served === null) {
    return [warn(id, 'the advertised origin does not answer from this machine', 'Check the firewall and the address.')];
  }
  if (served !== pin) {
    return [fail(id, 'the advertised origin serves another key', 'Find out what listens there: no phone accepts it.')];
  }
  if (found.kind === 'found' && found.facts.pin !== pin) {
    return [
      warn(id, 'the files hold another key than the running relay', 'Restart the relay and pair every device again.'),
    ];
  }
  return [ok(id, 'the listener serves the advertised key')];
}

function dashboardCheck({ gate }: SecureLinkFacts): Check {
  const id = 'secure-link-dashboard';
  if (!gate) {
    const rule = 'RELAY_SECURE_LINK_DASHBOARD_URL is not an http:// URL of this machine';
    return fail(id, rule, 'Correct it and restart the relay.');
  }
  if (gate.ok && asObject(gate.json)?.auth_required === true) return ok(id, 'the dashboard asks its users to sign in');
  return warn(
    id,
    gate.ok ? 'the dashboard does not ask its users to sign in, so it is not served' : `${gate.url}: ${outcome(gate)}`,
    'Start the dashboard with its sign-in on, or say where it is with RELAY_SECURE_LINK_DASHBOARD_URL.',
  );
}

function reachCheck({ health }: SecureLinkFacts): Check[] {
  const id = 'secure-link-reach';
  const { state, last_error: error, broker_url: url } = asObject(linkOf(health).reach) ?? {};
  if (typeof state !== 'string' || state === 'disabled') return [];
  if (state === 'connected') return [ok(id, `connected to ${url ?? 'the broker'}`)];
  const why = typeof error === 'string' ? `: ${error}` : '';
  const advice = otherRelayAdvice(String(error)) ?? 'Check the address and token of the broker, and that it runs.';
  return [warn(id, `${state}${why}`, advice)];
}
