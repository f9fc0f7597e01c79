import { type Check, warn } from './check.ts';
import type { Diagnosis } from './doctor.ts';

/** A check as shown to people: one for each cause. */
export interface Finding extends Check {
  /** Ids of the checks that failed or gave no result for the same cause. */
  covers?: string[];
}

export interface CheckGroup {
  title: 'Relay' | 'Agent' | 'Dashboard';
  checks: Finding[];
}

const isOfApi = ({ id }: Check): boolean => id.startsWith('api-');
/** `dashboard-plugin` is about the files of this installation instead. */
const isOfDashboard = ({ id }: Check): boolean => id.startsWith('dashboard-') && id !== 'dashboard-plugin';
const isOfGateway = ({ id }: Check): boolean => id.startsWith('gateway-');
const isOfAgent = (check: Check): boolean =>
  isOfApi(check) || isOfGateway(check) || check.id === 'agent' || check.id === 'legacy-bootstrap';

const isFine = ({ status, isUnknown }: Check): boolean => status === 'ok' && !isUnknown;

/**
 * The checks as shown to people: grouped by part, and one finding for each cause, such as a dashboard that does not run.
 * Scripts get every check, in the order of the contract (07 §5.2).
 */
export function groupChecks(diagnosis: Diagnosis): CheckGroup[] {
  const findings = findingsOf(diagnosis);
  const groups: CheckGroup[] = [
    { title: 'Relay', checks: findings.filter((check) => !isOfAgent(check) && !isOfDashboard(check)) },
    { title: 'Agent', checks: findings.filter(isOfAgent) },
    { title: 'Dashboard', checks: findings.filter(isOfDashboard) },
  ];
  return groups.filter((group) => group.checks.length > 0);
}

function findingsOf(diagnosis: Diagnosis): Finding[] {
  const all = [...agentChecks(diagnosis), ...diagnosis.checks];
  const byId = new Map(all.map((check) => [check.id, check]));
  const causes = causesOf(diagnosis, all);

  /** The root cause of a check with a problem. */
  function rootOf(check: Check, seen = new Set<string>()): Check {
    const cause = byId.get(causes.get(check.id) ?? '');
    if (!cause || isFine(check) || isFine(cause) || seen.has(cause.id)) return check;
    return rootOf(cause, seen.add(cause.id));
  }

  const findings = new Map<string, Finding>();
  for (const check of all) if (rootOf(check) === check) findings.set(check.id, { ...check });
  for (const check of all) {
    const finding = findings.get(rootOf(check).id);
    if (finding && finding.id !== check.id) finding.covers = [...(finding.covers ?? []), check.id];
  }
  return [...findings.values()];
}

const isApiSilent = ({ standard: { api } }: Diagnosis): boolean =>
  api.capabilities.status === null && api.toolsets.status === null;

/** One check for the agent as a whole, if neither of its servers answers. */
function agentChecks(diagnosis: Diagnosis): Check[] {
  const { dashboard, api_url: apiUrl, dashboard_url: dashboardUrl } = diagnosis.standard;
  const isSilent = isApiSilent(diagnosis) && dashboard.manage_surface.kind === 'unreachable';
  if (!isSilent || apiUrl === '' || dashboardUrl === '') return [];
  return [
    warn(
      'agent',
      `it does not run: neither its API server (${apiUrl}) nor its dashboard (${dashboardUrl}) answers`,
      'Start the agent, or say where it is with --api-url and --dashboard-url (SVC_API_URL, SVC_DASHBOARD_URL).',
    ),
  ];
}

/** Returns, for the id of a check, the id of another check whose failure explains it. */
function causesOf(diagnosis: Diagnosis, checks: readonly Check[]): Map<string, string> {
  const causes = new Map(checks.flatMap(({ id, cause }) => (cause === undefined ? [] : [[id, cause]])));
  const blame = (cause: string | undefined, affected: readonly Check[]): void => {
    if (cause === undefined) return;
    for (const { id } of affected) if (id !== cause) causes.set(id, cause);
  };
  const named = (...ids: string[]) => checks.filter(({ id }) => ids.includes(id));

  blame(
    relayCause(diagnosis, checks),
    named('relay-loopback', 'relay-host-tools', 'relay-devices', 'relay-push', 'relay-address', 'secure-link-listener'),
  );
  blame(dashboardCause(diagnosis), checks.filter(isOfDashboard));
  if (isApiSilent(diagnosis)) {
    // A gateway that ended unexpectedly is a finding of its own.
    const quiet = named('gateway-heartbeat').filter(() =>
      ['missing', 'stale'].includes(diagnosis.gateway_heartbeat.status),
    );
    const unknown = named('gateway-prior-exit').filter(({ isUnknown }) => isUnknown);
    blame('api-capabilities', [...named('api-toolsets'), ...quiet, ...unknown]);
  }
  if (checks.some(({ id }) => id === 'agent')) blame('agent', named('api-capabilities', 'dashboard-status'));
  return causes;
}

/** The check that explains why the relay reports nothing. */
function relayCause({ relay: { info } }: Diagnosis, checks: readonly Check[]): string | undefined {
  if (info.ok) return undefined;
  if (checks.some(({ id }) => id === 'relay-edge')) return 'relay-edge';
  return info.status === 401 || info.status === 403 ? 'relay-operator' : 'relay-loopback';
}

/** The check that best explains why no dashboard is at its address. */
function dashboardCause({ standard: { dashboard } }: Diagnosis): string | undefined {
  const { status, manage_surface: surface } = dashboard;
  if (status.ok) return undefined;
  const isOther = surface.kind === 'api-server' || (surface.kind === 'unknown' && status.status === 404);
  return isOther ? 'dashboard-manage-surface' : 'dashboard-status';
}
